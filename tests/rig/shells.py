"""What a shell makes of a line that a person pastes into it, with a stand-in for `pgqrs` that only shows its words."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

# A shell that executes one of these makes a file, which `arguments_of` looks for.
FRAGMENTS = (
    "'", '"', "`touch owned`", "$(touch owned)", "${IFS}", ";touch owned;", "\ntouch owned\n", "\rtouch owned\r", "&&touch owned",
    "|touch owned", ">owned", "<(touch owned)", "#", "!!", "!touch", "\\", "\\'", "'$(touch owned)'", '"$(touch owned)"', "$'", "''",
    "--help", "-", "-c", "--", "=ls", "~root", "*", "?", "[a-z]", "{a,b}", " ", "  ", "\t", "\x1b[2J", "\x1b]0;x\x07", "\x7f", "\x03",
    "\x15", "\x04", "\x80", "\x9b31m", "é", "e\u0301", "日本", "\u202egnp.exe", "\u200b", "\u2028", "\xa0", "\U0001f600", "\U000e0041",
    "\\'\";touch owned;#", "\\\\'", "\u2019;touch owned;\u2018", "(touch owned)", "$status", "a", "approve", "order:1", "x=1", "a.b-c_d", "%s", "%n", "\\012", "\\x41", "0", "-1", "<b>", "&quot;", ",", "@me",
)  # fmt: skip


# `start` is the first word of advice that is no command; pasted by mistake, it must do nothing, either.
_IN_SHELLS = 'pgqrs() { printf "%s\\0" "$#" "$@"; }\nstart() { pgqrs "$@"; }\n'
_IN_FISH = 'function pgqrs; printf "%s\\0" (count $argv) $argv; end\nfunction start; pgqrs $argv; end\n'


def hostile_names(count: int, *, seed: int) -> list[str]:
    """Names that are more than names to a careless shell: every fragment alone, then mixtures."""
    chosen = random.Random(seed)
    mixed = ("".join(chosen.choices(FRAGMENTS, k=chosen.randint(1, 6))) for _ in iter(int, 1))
    names = dict.fromkeys(FRAGMENTS)
    while len(names) < count:
        names[next(mixed)] = None
    return list(names)[:count]


def arguments_of(lines: Sequence[str], folder: Path, *, shell: str = "bash") -> list[list[str]]:
    """The words that each line, pasted into a shell, passes to `pgqrs`; an AssertionError if it does anything else."""
    script = (_IN_FISH if shell == "fish" else _IN_SHELLS) + "".join(f"{line}\n" for line in lines)
    folder.mkdir()
    given = {"input": script.encode(), "capture_output": True, "cwd": folder, "timeout": 60}
    subprocess.run([found(shell), "-n"], check=True, **given)
    done = subprocess.run(
        [found(shell)],
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
        **given,
    )
    assert not list(folder.iterdir()), "a pasted line was executed"
    assert done.stderr == b""
    assert done.returncode == 0

    words = iter(done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1])
    return [[next(words) for _ in range(int(count))] for count in words]


def found(shell: str) -> str:
    path = shutil.which(shell)
    assert path is not None, f"there is no {shell} here"
    return path
