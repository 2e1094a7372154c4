"""Commands that people copy: every `pgqrs ...` that we show is made here, so that names in it stay names.

They are for POSIX shells (bash, zsh, ksh, dash) and for fish. PowerShell and cmd.exe quote in other ways: there, type
the command and do not paste it.
"""

from __future__ import annotations

import re

# What no shell gives a meaning to, wherever it stands in a word. `shlex.quote` also leaves `=` bare, which zsh
# replaces by a path when a word starts with it.
_BARE = re.compile(r"[A-Za-z0-9_.,:/@%+-]+", re.ASCII)
_APART = re.compile(r"['\\]")
_APART_AS = {"'": "'\"'\"'", "\\": "'\"\\\\\"'"}


def command(words: str, *values: object, **options: object) -> str:
    """Return the command line `pgqrs WORDS [--option=...] [--] VALUES`, fit to be pasted into a shell.

    `words` are ours (`run signal`) and stay as they are; values and options may be anything.
    """
    texts = [str(value) for value in values]
    # Without it a name such as `--help` would be read as an option.
    dashes = ["--"] if any(text.startswith("-") for text in texts) else []
    given = [f"--{name.replace('_', '-')}={quoted(value)}" for name, value in options.items()]
    return " ".join(["pgqrs", words, *given, *dashes, *map(quoted, texts)])


def quoted(value: object) -> str:
    """Return one word of a POSIX shell and of fish, on one line and printable, that stands for exactly this text.

    Text that is not printable is written as `$'...'` with its bytes in octal. A shell that does not know that form
    passes a wrong name on (dash) or refuses the line (fish), but executes nothing: no quote ends inside it. A NUL
    cannot be passed to any program, so it becomes a replacement character.
    """
    text = str(value).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if _BARE.fullmatch(text):
        return text
    if text.isprintable():
        # The quote is closed, an apostrophe or a backslash follows in quotes of its own, the quote is opened again.
        # A backslash, too: between single quotes fish takes `\'` for an apostrophe, and so would not see the end.
        return "'" + _APART.sub(lambda found: _APART_AS[found.group()], text) + "'"
    # surrogateescape: bytes that were not UTF-8 come back as they were.
    return "$'" + "".join(map(_escaped, text.encode("utf-8", "surrogateescape"))) + "'"


def _escaped(byte: int) -> str:
    # A quote would end the word, a backslash begin an escape, an exclamation mark recall history.
    is_plain = 0x20 <= byte < 0x7F and byte not in b"'\\!"
    return chr(byte) if is_plain else f"\\{byte:03o}"
