"""Stored JSON texts as documents and answers hold them: as they are, and shown rather than refused when broken."""

from __future__ import annotations

from typing import Any

import msgspec

from pgqrs.serialization import as_stored, broken

# Checks a text, and gives it as it is.
_raw = msgspec.json.Decoder(msgspec.Raw)


def stored(text: str | None, *, raw: bool = False) -> Any:
    """What the text holds; one that is broken as the text itself, so that people can see it.

    With `raw` it stays a text, for `msgspec.json.encode`: parsed, a value takes ten times its size.
    """
    if text is None or not raw:
        return as_stored(text)
    try:
        return _raw.decode(text)
    except (ValueError, RecursionError):
        return broken(text)
