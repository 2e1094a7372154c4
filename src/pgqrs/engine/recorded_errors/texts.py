"""Texts about errors that every database can store."""

from __future__ import annotations

from typing import Any

_MOST_MESSAGE = 2_000

_name = type.__dict__["__name__"].__get__


def message_of(error: BaseException) -> str:
    """Return what an error says. An error that cannot even say that must not keep its run from being recorded."""
    return text_of(error)


def text_of(thing: Any) -> str:
    """Return `str` of anything, storable, up to a length that is worth storing."""
    try:
        return storable(str(thing))[:_MOST_MESSAGE]
    except Exception as broken:  # noqa: BLE001 - its `__str__` is the user's, and may do anything
        return f"(str() of the exception raised {type(broken).__name__})"


def storable(text: str) -> str:
    """Return a text without the characters that JSON, or a database, cannot hold: messages may quote anything."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def name_of(kind: type) -> str:
    """Return the name of a class, without asking its metaclass."""
    return storable(_name(kind))
