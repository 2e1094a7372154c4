"""Opaque pagination cursors: the place of a page's last item as numbers and a name, with a check at the end."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from contextlib import suppress
from datetime import datetime

from pgqrs.clock import from_microseconds, microseconds
from pgqrs.errors import ConfigError

# Longer than any name of ours.
MOST_CURSOR = 4_096


def to_cursor(*numbers: int | datetime, name: str = "") -> str:
    """Return a cursor of numbers of 64 bits, times among them, and a name."""
    whole = [microseconds(each) if isinstance(each, datetime) else each for each in numbers]
    packed = struct.pack(f">{len(whole)}q", *whole) + name.encode("utf-8", "replace")
    return base64.urlsafe_b64encode(packed + _check(packed)).decode()


def from_cursor(cursor: str, count: int) -> tuple[int, ...]:
    """Return the numbers again, `count` of them; raise ConfigError for anything that `to_cursor` did not make."""
    name, numbers = from_named_cursor(cursor, count)
    if name:
        raise _broken(cursor)
    return numbers


def from_named_cursor(cursor: str, count: int) -> tuple[str, tuple[int, ...]]:
    """Return the name and the numbers again, or raise as `from_cursor` does."""
    raw = _decoded(cursor)
    size = 8 * count
    if size + 4 <= len(raw) and raw[-4:] == _check(raw[:-4]):
        with suppress(UnicodeDecodeError):
            return raw[size:-4].decode(), struct.unpack(f">{count}q", raw[:size])
    raise _broken(cursor)


def moment_of(number: int) -> datetime:
    """Return the time that a number of a cursor stands for."""
    try:
        return from_microseconds(number)
    except OverflowError:
        raise of_another_list() from None


def of_another_list() -> ConfigError:
    """Return the error for a cursor that is whole, and whose place this list cannot have."""
    return ConfigError("cursor is broken, or of another list", hint="use next_cursor of the page before, or none")


def _decoded(cursor: str) -> bytes:
    try:
        if len(cursor) > MOST_CURSOR:
            return b""
        return base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeError, AttributeError, TypeError):
        return b""


def _broken(cursor: object) -> ConfigError:
    return ConfigError(f"cursor {str(cursor)[:60]!r} is broken", hint="use next_cursor of the page before, or none")


def _check(packed: bytes) -> bytes:
    """Tells a cursor from other text; it keeps no secret."""
    return hashlib.blake2b(packed, digest_size=4, person=b"pgqrs.cursor").digest()
