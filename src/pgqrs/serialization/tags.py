"""Tags: the builtins that JSON does not have, written as objects with one key from a fixed table, and read again."""

from __future__ import annotations

import base64
import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from pgqrs.errors import SerializationError
from pgqrs.serialization.classes import to_plain
from pgqrs.serialization.hash_collisions import checked

# Containers within containers. Each takes up to three levels of JSON and four Python frames: a hundred stay
# clear of the interpreter's limit of 1,000. A value that holds itself ends here too.
MAX_DEPTH = 100

# Python's own default limit for turning text into an int (sys.set_int_max_str_digits).
MAX_INT_DIGITS = 4300

# Beyond 64 bits other readers of JSON would round.
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1

_encoder = msgspec.json.Encoder()

TOO_DEEP = f"nested deeper than {MAX_DEPTH} containers, or holding itself"


def _inside(key: Any, error: SerializationError) -> SerializationError:
    """The error of an item, as the container that holds it under `key` reports it."""
    if type(key) is not str:
        part = f"[{reprlib.repr(key)}]"
    else:
        part = f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"
    return SerializationError(error.reason, path=f"${part}{error.path[1:]}")


def to_tagged(value: Any, depth: int = 0) -> Any:
    """The value as what JSON has, tags included; `depth` containers are around it."""
    return _WRITERS.get(type(value), _write_other)(value, depth)


def _write_as_is(value: Any, _depth: int) -> Any:
    return value


def _write_int(value: int, _depth: int) -> Any:
    if _INT_MIN <= value <= _INT_MAX:
        return value
    try:
        digits = str(value)
    except ValueError:  # more than sys.get_int_max_str_digits()
        digits = ""
    if not 0 < len(digits.lstrip("-")) <= MAX_INT_DIGITS:
        raise SerializationError(f"an int of more than {MAX_INT_DIGITS} digits could not be read back")
    return {"$int": digits}


def _write_float(value: float, _depth: int) -> float:
    if not math.isfinite(value):
        raise SerializationError(f"JSON has no {value}", hint="use None or a string")
    return value


def _write_str(value: str, _depth: int) -> str:
    if "\0" in value:
        raise SerializationError("a string with a NUL character cannot be stored", hint="remove it or use bytes")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SerializationError("a string with a lone surrogate is not Unicode", hint="use bytes") from None
    return value


def _write_items(value: Iterable[Any], depth: int) -> list[Any]:
    if depth >= MAX_DEPTH:
        raise SerializationError(TOO_DEEP)
    items: list[Any] = []
    try:
        for item in value:
            items.append(_WRITERS.get(type(item), _write_other)(item, depth + 1))  # noqa: PERF401 - its length is the index
    except SerializationError as error:
        raise _inside(len(items), error) from error.__cause__
    return items


def _write_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise SerializationError(TOO_DEEP)
    members: dict[str, Any] = {}
    key: Any = None
    try:
        for key, item in value.items():
            # A key that looks like a tag goes into a pair, so that nobody's data is ever taken for a tag.
            if type(key) is not str or key.startswith("$"):
                break
            members[_write_str(key, depth)] = _WRITERS.get(type(item), _write_other)(item, depth + 1)
        else:
            return members
    except SerializationError as error:
        raise _inside(key, error) from error.__cause__
    return {"$dict": _write_pairs(value, depth)}


def _write_pairs(value: dict[Any, Any], depth: int) -> list[Any]:
    pairs: list[Any] = []
    key: Any = None
    hashables = _hashables(value)
    try:
        for key, item in zip(hashables, value.values(), strict=True):
            pairs.append([to_tagged(key, depth + 1), to_tagged(item, depth + 1)])
    except SerializationError as error:
        raise _inside(key, error) from error.__cause__
    return pairs


def _write_elements(value: Iterable[Any], depth: int) -> list[Any]:
    if depth >= MAX_DEPTH:
        raise SerializationError(TOO_DEEP)
    # Sorted by their text, so that equal sets have equal texts.
    return sorted((to_tagged(element, depth + 1) for element in _hashables(value)), key=_encoder.encode)


def _hashables(values: Iterable[Any]) -> list[Any]:
    hashables = [_hashable(value) for value in values]
    if len(set(hashables)) < len(hashables):
        raise SerializationError("two of its keys or elements would come back as one", hint="store other values")
    return hashables


def _hashable(value: Any) -> Any:
    """What a reader without annotations hashes in its place: an Enum's value, a NamedTuple's tuple."""
    if isinstance(value, Enum):
        return to_plain(value)
    if type(value) is frozenset:
        return frozenset(_hashables(value))
    if type(value) is tuple or _is_named_tuple(value):
        return tuple(map(_hashable, value))
    if type(value) not in _WRITERS:
        raise SerializationError(
            f"cannot store a {type(value).__qualname__} as a key or in a set", hint="use plain data there"
        )
    return value


def _write_moment(value: Any, _depth: int) -> Any:
    """A datetime or time as ISO text, or as [text, zone, fold] where the text alone would lose them."""
    zone = value.tzinfo
    if type(zone) is ZoneInfo and zone.key is not None:
        return [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]
    if zone is not None:
        offset = value.utcoffset()
        # datetime.fromisoformat takes an offset under a second for zero (seen in Python 3.11).
        if offset is None or offset.microseconds:
            raise SerializationError(f"{zone!r} gives no UTC offset in whole seconds", hint="use zoneinfo.ZoneInfo")
    return [value.isoformat(), None, value.fold] if value.fold else value.isoformat()


def _write_decimal(value: Decimal, _depth: int) -> str:
    if value.is_nan():
        raise SerializationError(f"Decimal({str(value)!r}) is not equal to itself", hint="use None or a string")
    return str(value)


def _write_complex(value: complex, depth: int) -> list[float]:
    return [_write_float(value.real, depth), _write_float(value.imag, depth)]


def _write_bytes(value: bytes, _depth: int) -> str:
    return base64.b64encode(value).decode()


def _write_other(value: Any, depth: int) -> Any:
    if isinstance(value, UUID):
        # asyncpg's rows hold a subclass that equals the plain one in everything; people put row ids into payloads.
        return to_tagged(UUID(int=value.int), depth)
    if not isinstance(value, Enum) and not _is_named_tuple(value):
        builtin = next((builtin for builtin in _WRITERS if isinstance(value, builtin)), None)
        if builtin is not None:
            raise SerializationError(
                f"{type(value).__qualname__} is a subclass of {builtin.__name__} and would come back as a plain one",
                hint=f"convert it to {builtin.__name__} first",
            )
    return to_tagged(to_plain(value), depth)


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def from_tagged(value: Any) -> Any:
    """The value with its tags resolved, from the inside out; lists and dicts are changed in place."""
    items: Iterable[tuple[Any, Any]]
    if type(value) is list:
        items = enumerate(value)
    elif type(value) is dict:
        items = value.items()
    else:
        return value
    key: Any = None
    try:
        for key, item in items:
            if type(item) is dict or type(item) is list:
                value[key] = from_tagged(item)
    except SerializationError as error:
        raise _inside(key, error) from error.__cause__
    if type(value) is dict and len(value) == 1 and key in _TAGS:
        return _read(key, value[key])
    return value


def _read(tag: str, content: Any) -> Any:
    try:
        return _TAGS[tag].read(content)
    except (TypeError, ValueError, ArithmeticError, LookupError, OSError) as error:
        raise SerializationError(f"malformed {tag}: {error}") from error


def _expect(kind: type, content: Any) -> Any:
    if type(content) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(content).__name__}")
    return content


def _read_int(content: Any) -> int:
    if not re.fullmatch(f"-?[0-9]{{1,{MAX_INT_DIGITS}}}", content):
        raise ValueError("not a decimal number")
    return int(content)


def _read_dict(content: Any) -> dict[Any, Any]:
    pairs = [_expect(list, pair) for pair in _expect(list, content)]
    checked([pair[0] for pair in pairs])
    return dict(pairs)


def _read_bytes(content: Any) -> bytes:
    return base64.b64decode(_expect(str, content), validate=True)


def _read_moment(kind: Any, content: Any) -> Any:
    if type(content) is str:
        return kind.fromisoformat(content)
    text, zone, fold = _expect(list, content)
    moment = kind.fromisoformat(text).replace(fold=fold)
    return moment if zone is None else moment.replace(tzinfo=ZoneInfo(zone))


def _read_timedelta(content: Any) -> timedelta:
    days, seconds, microseconds = (_expect(int, part) for part in _expect(list, content))
    return timedelta(days, seconds, microseconds)


def _read_decimal(content: Any) -> Decimal:
    number = Decimal(_expect(str, content))
    if number.is_nan():
        raise ValueError("NaN")
    return number


def _read_complex(content: Any) -> complex:
    real, imaginary = (_expect(float, part) for part in _expect(list, content))
    return complex(real, imaginary)


class _Tag(NamedTuple):
    kind: type
    write: Callable[[Any, int], Any]
    read: Callable[[Any], Any]


# The one table of tags. What is in databases depends on it: add rows, never change one.
# `$int` and `$dict` stand for what JSON could not hold; their writers decide.
_TAGS = {
    "$tuple": _Tag(tuple, _write_items, lambda content: tuple(_expect(list, content))),
    "$set": _Tag(set, _write_elements, lambda content: set(checked(_expect(list, content)))),
    "$frozenset": _Tag(frozenset, _write_elements, lambda content: frozenset(checked(_expect(list, content)))),
    "$bytes": _Tag(bytes, _write_bytes, _read_bytes),
    "$bytearray": _Tag(bytearray, _write_bytes, lambda content: bytearray(_read_bytes(content))),
    "$datetime": _Tag(datetime, _write_moment, lambda content: _read_moment(datetime, content)),
    "$date": _Tag(date, lambda value, _: value.isoformat(), date.fromisoformat),
    "$time": _Tag(time, _write_moment, lambda content: _read_moment(time, content)),
    "$timedelta": _Tag(timedelta, lambda value, _: [value.days, value.seconds, value.microseconds], _read_timedelta),
    "$uuid": _Tag(UUID, lambda value, _: str(value), lambda content: UUID(_expect(str, content))),
    "$decimal": _Tag(Decimal, _write_decimal, _read_decimal),
    "$complex": _Tag(complex, _write_complex, _read_complex),
    "$int": _Tag(int, _write_int, _read_int),
    "$dict": _Tag(dict, _write_dict, _read_dict),
}


def _tagged(tag: str, write: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    return lambda value, depth: {tag: write(value, depth)}


# By exact type: a subclass is not what would come back.
_WRITERS: dict[type, Callable[[Any, int], Any]] = {
    **{tag.kind: _tagged(name, tag.write) for name, tag in _TAGS.items()},
    type(None): _write_as_is,
    bool: _write_as_is,
    int: _write_int,
    float: _write_float,
    str: _write_str,
    list: _write_items,
    dict: _write_dict,
}
