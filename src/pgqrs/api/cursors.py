"""Cursors: where a list goes on, as a word that nobody need understand."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from contextlib import suppress

from pgqrs.errors import ConfigError

# Longer than any name of ours.
MOST_CURSOR = 4_096


def to_cursor(*numbers: int) -> str:
    """The place of the last of a page, as numbers of 64 bits."""
    packed = struct.pack(f">{len(numbers)}q", *numbers)
    return base64.urlsafe_b64encode(packed + _check(packed)).decode()


def from_cursor(cursor: str, count: int) -> tuple[int, ...]:
    """The numbers again, `count` of them; ConfigError for anything that `to_cursor` did not make."""
    raw = _decoded(cursor)
    if len(raw) != 8 * count + 4 or raw[-4:] != _check(raw[:-4]):
        raise _broken(cursor)
    return struct.unpack(f">{count}q", raw[:-4])


def to_named_cursor(name: str, *numbers: int) -> str:
    """The same with a name at its end."""
    packed = struct.pack(f">{len(numbers)}q", *numbers) + name.encode("utf-8", "replace")
    return base64.urlsafe_b64encode(packed + _check(packed)).decode()


def from_named_cursor(cursor: str, count: int) -> tuple[str, tuple[int, ...]]:
    """The name and the numbers again, with what `from_cursor` refuses."""
    raw = _decoded(cursor)
    size = 8 * count
    if size + 4 <= len(raw) and raw[-4:] == _check(raw[:-4]):
        with suppress(UnicodeDecodeError):
            return raw[size:-4].decode(), struct.unpack(f">{count}q", raw[:size])
    raise _broken(cursor)


def _decoded(cursor: str) -> bytes:
    try:
        if len(cursor) > MOST_CURSOR:
            return b""
        return base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeError, AttributeError, TypeError):
        return b""


def _broken(cursor: object) -> ConfigError:
    return ConfigError(f"cursor {str(cursor)[:60]!r} is broken; use next_cursor of the page before, or none")


def _check(packed: bytes) -> bytes:
    """Tells a cursor from other text; it keeps no secret."""
    return hashlib.blake2b(packed, digest_size=4, person=b"pgqrs.cursor").digest()
