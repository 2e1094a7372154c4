"""Values in and out of JSON text, equal in value and type, or refused with their path.

What JSON has is written as it is. Other builtins become an object whose one key is a tag from the table in `tags.py`:

    {"$datetime": "2024-05-01T12:00:00+00:00"}    {"$tuple": [1, 2]}    {"$dict": [[1, "a"], [2, "b"]]}

Classes (dataclass, attrs, msgspec.Struct, pydantic, NamedTuple, Enum) become plain objects, arrays and
values; `classes.py` does that part. The text does not name them: the annotation on the reading side gives the class
back, so that no stored text can choose what is built.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from pgqrs.errors import PayloadTooLarge, SerializationError
from pgqrs.serialization.classes import to_type
from pgqrs.serialization.hash_collisions import check_for
from pgqrs.serialization.tags import TOO_DEEP, from_tagged, to_tagged

# How a stored text that cannot be read is shown.
BROKEN = "$broken"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


@contextmanager
def naming(what: str) -> Iterator[None]:
    """A SerializationError that is raised within tells whose value it is about: `the result of workflow 'order'`."""
    try:
        yield
    except SerializationError as error:
        error.about(what)
        raise


def encode(value: Any, *, max_bytes: int | None = None) -> str:
    """The JSON text of `value`.

    Raises SerializationError with the path of what would not come back as it is, and PayloadTooLarge when the
    text takes more than `max_bytes` as UTF-8.
    """
    try:
        encoded = _encoder.encode(to_tagged(value))
    except RecursionError:
        raise SerializationError(TOO_DEEP) from None
    if max_bytes is not None and len(encoded) > max_bytes:
        raise PayloadTooLarge(len(encoded), max_bytes)
    return encoded.decode()


def decode(text: str, as_type: Any = Any) -> Any:
    """The value of a JSON text, as a value of `as_type` if one is given.

    Also reads plain JSON that others wrote (`"2024-01-01T00:00:00Z"` as a datetime, base64 as bytes). Raises
    SerializationError when the text is broken, holds a malformed tag or does not fit the type.
    """
    # Most texts hold no tag; finding that out here is far cheaper than a look at every value.
    return from_parsed(parsed(text), as_type, tagged='"$' in text)


def object_in(text: str | None) -> dict[str, Any]:
    """Return the object in a stored text; an empty one if the text is broken or holds something else.

    For what the engine wrote itself: a row that was changed by hand must not fail the rows beside it.
    """
    try:
        found = decode(text or "null")
    except SerializationError:
        return {}
    return found if isinstance(found, dict) else {}


def as_stored(text: str | None) -> Any:
    """Return a stored text as plain data, tags as they are; `{"$broken": text}` if it is not JSON.

    For people and for lists: one row that cannot be read must not hide the others.
    """
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        return broken(text)


def readable(text: str | None) -> Any:
    """Return the value of a stored text, or `{"$broken": text}` if it cannot be read."""
    try:
        return None if text is None else decode(text)
    except SerializationError:
        return broken(text)


def broken(text: str | None) -> dict[str, Any]:
    return {BROKEN: text}


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond every float")
    return number


def _no_number(word: str) -> float:
    raise ValueError(f"JSON has no {word}")


def parsed(text: str) -> Any:
    """Return what the JSON text holds, tags as they are; raise SerializationError if it is broken."""
    try:
        return _decoder.decode(text)
    except RecursionError:
        raise SerializationError(TOO_DEEP) from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise SerializationError(f"not the JSON text of a value: {error}") from error


def from_parsed(value: Any, as_type: Any = Any, *, tagged: bool = True) -> Any:
    """Return the value that parsed JSON stands for; its lists and dicts are changed in place."""
    try:
        if tagged:
            value = from_tagged(value)
        if as_type is Any:
            return value
        check_for(as_type, value)
        return to_type(value, as_type)
    except RecursionError:
        raise SerializationError(TOO_DEEP) from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise SerializationError(f"not the JSON text of a value: {error}") from error


def text_of(value: Any) -> str:
    """Return the text of parsed JSON."""
    return _encoder.encode(value).decode()


def same_value(one: str, other: str) -> bool:
    """Do two encoded values say the same? The order of an object's keys says nothing."""
    return one == other or _canonical(one) == _canonical(other)


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


class Encoded:
    """An input that a handler's signature has encoded already."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text: str = text
