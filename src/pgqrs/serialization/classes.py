"""Classes as plain data, and plain data as classes: what annotations describe and JSON does not name."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections.abc import Iterable
from enum import Enum
from typing import Any, Union, get_args, get_origin

import msgspec

from pgqrs.errors import SerializationError


def to_plain(value: Any) -> Any:
    """The instance of a class as the dict, list or value it is stored as; what it holds is left as it is."""
    kind: Any = type(value)
    if isinstance(value, Enum):
        check_readable(kind)
        return value.value
    if isinstance(value, tuple):  # a NamedTuple: other subclasses of builtins do not come here
        check_readable(kind)
        return list(value)
    if _is_pydantic(kind):
        return _dump_model(value)
    try:
        fields = {written: getattr(value, name) for name, written in _fields_of(kind)}
    except AttributeError as error:
        raise SerializationError(f"{kind.__qualname__} has a field without a value: {error}") from None
    return _plain_struct(value, fields) if isinstance(value, msgspec.Struct) else fields


def to_type(value: Any, as_type: Any) -> Any:
    """The value of `as_type` that plain data stands for; raises SerializationError when it does not fit."""
    try:
        return msgspec.convert(value, as_type, dec_hook=_to_other_type, str_keys=True)
    except msgspec.ValidationError as error:
        reason, path = _split_path(str(error))
        raise SerializationError(reason, path=path) from error
    except RecursionError:
        raise
    except Exception as error:
        # msgspec refuses unions that JSON alone could not tell apart (`str | bytes`), but the tags have.
        if _is_a(value, as_type):
            return value
        # Whatever it is, it may be the user's own: __post_init__, validators and Enum._missing_ run in here.
        raise SerializationError(f"cannot be read as {_name(as_type)}: {error!r}") from error


@functools.lru_cache(maxsize=1024)
def check_readable(kind: type) -> None:
    """Refuses a class that no annotation brings back: with InitVar, an Enum of tuples, `str | bytes` fields.

    Asked when writing, because the reader may be a replay after a crash.
    """
    try:
        msgspec.convert(None, kind, dec_hook=_to_other_type)
    except msgspec.ValidationError:
        return  # msgspec knows the class, and None is no instance of it
    except Exception as error:
        raise SerializationError(f"{kind.__qualname__} could not be read back: {error}") from error


@functools.lru_cache(maxsize=1024)
def _fields_of(kind: type) -> Iterable[tuple[str, str]]:
    """The attributes of a class and the names they are written under.

    Fields with `init=False` are among them: they are state too, and reading sets them before `__post_init__`.
    """
    if issubclass(kind, msgspec.Struct):
        fields = tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    elif dataclasses.is_dataclass(kind):
        fields = tuple((field.name, field.name) for field in dataclasses.fields(kind))
    elif hasattr(kind, "__attrs_attrs__"):
        fields = tuple((attribute.name, attribute.name) for attribute in kind.__attrs_attrs__)
    else:
        raise SerializationError(
            f"cannot store a value of type {kind.__qualname__}",
            hint="use plain data, a dataclass, a NamedTuple, an Enum, or an attrs, msgspec or pydantic class",
        )
    check_readable(kind)
    return fields


def _plain_struct(struct: msgspec.Struct, fields: dict[str, Any]) -> Any:
    config = struct.__struct_config__
    tag = {} if config.tag is None else {config.tag_field: config.tag}
    if config.array_like:
        return [*tag.values(), *fields.values()]
    return tag | {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "model_dump") and hasattr(kind, "model_validate")


def _dump_model(model: Any) -> Any:
    try:
        # By name: an alias may be another on reading than on writing. round_trip leaves out computed fields.
        return model.model_dump(mode="python", by_alias=False, round_trip=True, warnings="error")
    except Exception as error:  # serializers are the user's code
        raise SerializationError(f"{type(model).__qualname__} does not dump: {error}") from error


def _validate_model(kind: Any, value: Any) -> Any:
    try:
        # By name for what we wrote, by alias for what others wrote (pydantic 2.11). Not strict, even if the model
        # is: strict asks for the Enum member and the datetime, and JSON has only their values.
        return kind.model_validate(value, by_name=True, by_alias=True, strict=False)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        # The first complaint, and without pydantic's copy of the input: that may be a secret.
        first = error.errors()[0]
        where = ".".join(map(str, (kind.__qualname__, *first["loc"])))
        raise ValueError(f"{where}: {first['msg']}") from None


def _to_other_type(kind: Any, value: Any) -> Any:
    """What msgspec calls for types that it does not know; it adds the path to a TypeError or ValueError."""
    if _is_pydantic(kind):
        return _validate_model(kind, value)
    if isinstance(kind, type) and isinstance(value, kind):
        return value
    raise TypeError(f"Expected `{_name(kind)}`, got `{type(value).__name__}`")


def _split_path(message: str) -> tuple[str, str]:
    """The reason and the path in a msgspec error, which ends in "- at `$.a[0]`" when it knows where."""
    where = re.search(r" - at (`key` in )?`(\$.*)`$", message)
    if where is None:
        return message, "$"
    return message[: where.start()] + (" as a key" if where[1] else ""), where[2]


def _is_a(value: Any, as_type: Any) -> bool:
    """Whether the value already is of a type that is made of builtins."""
    origin, arms = get_origin(as_type), get_args(as_type)
    if origin in (Union, types.UnionType):
        return any(_is_a(value, arm) for arm in arms)
    if as_type is Any or type(value) is as_type:
        return True
    if type(value) is not origin:
        return False
    if origin is dict:
        return all(_is_a(key, arms[0]) and _is_a(item, arms[1]) for key, item in value.items())
    if origin is tuple and arms[-1:] != (...,):
        return len(value) == len(arms) and all(map(_is_a, value, arms))
    return all(_is_a(item, arms[0]) for item in value)


def _name(as_type: Any) -> str:
    return as_type.__qualname__ if isinstance(as_type, type) else str(as_type)
