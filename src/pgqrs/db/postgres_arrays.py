"""Arrays for PostgreSQL as text (`{1,2,NULL}`), so that a statement's many values travel as a few strings.

asyncpg looks at every item of a list to find out whether it is a list itself, which takes longer than all the rest of
sending it; and a string is the same for every other driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any


def numbers(column: Sequence[Any]) -> str:
    """Of numbers and None."""
    return "{" + ",".join(map(str, column)).replace("None", "NULL") + "}"


def texts(column: Sequence[Any]) -> str:
    """Of text, times and None. Each is quoted, so that no text can mean anything but itself."""
    missing = sum(1 for item in column if item is None)
    if missing == len(column):
        return "{" + ",".join(["NULL"] * missing) + "}"
    if not missing:
        try:
            plain = '","'.join(column)
        except TypeError:  # a time
            plain = "\\"
        # Nothing in it that would have to be marked: as many quotes as we have put in ourselves.
        if "\\" not in plain and plain.count('"') == 2 * (len(column) - 1):
            return '{"' + plain + '"}'
    return "{" + ",".join(map(_quoted, column)) + "}"


def _quoted(item: Any) -> str:
    if item is None:
        return "NULL"
    text = item.isoformat() if isinstance(item, datetime) else item
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
