"""Error signatures: failures that are the same but for their numbers, names and times get one name.

TimeoutError-3f9a1c02  =  the class, and a hash of step, class and what stays the same in the message
"""

from __future__ import annotations

import hashlib
import re

from pgqrs.text.step_ids import work_of

# Beyond this a message says nothing new about its cause.
_MOST_MESSAGE = 2_000
_MOST_KIND = 80
# Signatures stand in filters (error:TimeoutError-3f9a1c02): no blanks, no commas.
_ODD = re.compile(r"[^\w.]+")

# What varies, in the order in which it is taken out. Each pattern is bounded, or can only begin where a run of its
# characters begins, so that no message takes more than linear time.
_VARIES = (
    # An apostrophe inside a word (can't) opens nothing.
    (re.compile(r"(?<!\w)'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`"), "<text>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (
        re.compile(
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)(?!\w))?)?"
        ),
        "<time>",
    ),
    (re.compile(r"\b0x[0-9a-f]+", re.IGNORECASE), "<n>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w.-]+"), "<address>"),
    # IPv6: at least two colons among hexadecimal groups.
    (re.compile(r"(?<![\w:.])(?=[0-9a-f]*:[0-9a-f]*:)[0-9a-f:]+(?:%\w+)?(?![\w:])", re.IGNORECASE), "<n>"),
)
# With the query of a URL.
_PATH = re.compile(r"(?<![\w.:~+%@\\/-])[\w.:~+%@-]*+[\\/][\w.:~+%@\\/?=&#-]*")
_REST = (
    # A word of hexadecimal digits with a digit in it: hashes, object ids.
    (re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{7,}\b", re.IGNORECASE), "<n>"),
    # 1,234.5 and 10.0.0.7:5432 are one number each.
    (re.compile(r"(?<!\w)[+-]?\d+(?:[.,:]\d+)*|\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def error_signature(kind: str, message: str, step: str | None) -> str:
    """`<Kind>-<8 hex>`: the same for errors of one class, in one step, whose messages differ only in what varies.

    The step's place among its repetitions (`fetch@1#2`) varies too, and so does the number of a child (`result:7`).
    """
    name = "" if step is None else work_of(step)
    text = "\0".join((name, kind, stable_part(message)))
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{_ODD.sub('_', kind)[:_MOST_KIND] or 'Error'}-{digest}"


def stable_part(message: str) -> str:
    """The message without what varies: quoted text, ids, times, addresses, ends of paths, numbers."""
    text = message[:_MOST_MESSAGE]
    for pattern, stand_in in _VARIES:
        text = pattern.sub(stand_in, text)
    text = _PATH.sub(_shortened, text)
    for pattern, stand_in in _REST:
        text = pattern.sub(stand_in, text)
    return text.strip()


def _shortened(match: re.Match[str]) -> str:
    """A path without its last part, and without the parts that hold a digit."""
    *folders, _last = re.split(r"[\\/]", match.group())
    return "/".join("*" if any(c.isdigit() for c in folder) else folder for folder in (*folders, "*"))
