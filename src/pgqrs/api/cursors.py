"""Cursors: where a list goes on, as a word that nobody need understand."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct

from pgqrs.errors import ConfigError


def to_cursor(*numbers: int) -> str:
    """The place of the last of a page, as numbers of 64 bits."""
    packed = struct.pack(f">{len(numbers)}q", *numbers)
    return base64.urlsafe_b64encode(packed + _check(packed)).decode()


def from_cursor(cursor: str, count: int) -> tuple[int, ...]:
    """The numbers again, `count` of them; ConfigError for anything that `to_cursor` did not make."""
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeError, AttributeError):
        raw = b""
    if len(raw) != 8 * count + 4 or raw[-4:] != _check(raw[:-4]):
        raise ConfigError(f"cursor {str(cursor)[:60]!r} is broken; use next_cursor of the page before, or none")
    return struct.unpack(f">{count}q", raw[:-4])


def _check(packed: bytes) -> bytes:
    """Tells a cursor from other text; it keeps no secret."""
    return hashlib.blake2b(packed, digest_size=4, person=b"pgqrs.cursor").digest()
