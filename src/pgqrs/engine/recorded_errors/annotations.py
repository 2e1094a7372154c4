"""Which types the attributes of an error class have, and which of them can be read without running their code."""

from __future__ import annotations

import ast
import dataclasses
import sys
import types
import typing
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import EnumType
from typing import Any
from uuid import UUID

import msgspec

from pgqrs.engine.recorded_errors.classes import members_of, mro_of
from pgqrs.engine.recorded_errors.imports import namespace_of

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    datetime,
    date,
    time,
    timedelta,
    Decimal,
    UUID,
)
_CONTAINERS = (list, dict, tuple, set, frozenset)
# What msgspec calls, or has Python call, while it builds an instance.
_HOOKS = ("__post_init__", "__new__", "__init__", "__setattr__", "__getattribute__", "__del__")
_NOT_WRITTEN = frozenset({"builtins", "enum", "msgspec", "msgspec._core", None})
# The parts of an expression that only names types: no call, no lambda.
_NAMING = (
    *(ast.Expression, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Constant),
    *(ast.Tuple, ast.List, ast.BinOp, ast.BitOr),
)

# By identity: the hash of a class may be a metaclass's. The value keeps the class alive, and so its id.
_known: dict[int, tuple[type, dict[str, Any]]] = {}


def annotated_types(kind: type) -> dict[str, Any]:
    """Return the types that a class, or its `__init__`, annotates its attributes with, if they run no code of theirs.

    The nearest class wins. An annotation that cannot be evaluated now is none.
    """
    known = _known.get(id(kind))
    if known is None:
        known = _known[id(kind)] = (kind, _annotated_types(kind))
    return known[1]


def _annotated_types(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in mro_of(kind):
        function = members_of(each).get("__init__")
        annotations = _of_class(each)
        module = members_of(each).get("__module__")
        scope = (namespace_of(sys.modules.get(module)) if type(module) is str else None) or {}
        if type(function) is types.FunctionType:
            # A class made in a function, or in a module that is not in sys.modules, has its names there.
            scope = function.__globals__
            annotations = {**_of_function(function), **annotations}
        for name, hint in annotations.items():
            if name not in found and name != "return":
                found[name] = _evaluated(hint, scope, dict(members_of(each)))
    return {name: hint for name, hint in found.items() if hint is not None and is_inert(hint)}


if sys.version_info >= (3, 14):
    # Annotations are functions there, which evaluate them when they are read: older versions have no such function.
    from annotationlib import Format, call_annotate_function, get_annotate_from_class_namespace

    def _of_class(kind: type) -> dict[str, Any]:
        members = members_of(kind)
        # With `from __future__ import annotations` they are there, as text.
        return members.get("__annotations__") or _read(get_annotate_from_class_namespace(members))

    def _of_function(function: types.FunctionType) -> dict[str, Any]:
        return function.__annotations__ if function.__annotate__ is None else _read(function.__annotate__)

    def _read(annotate: Any) -> dict[str, Any]:
        try:
            return {} if annotate is None else call_annotate_function(annotate, Format.FORWARDREF)
        except Exception:  # noqa: BLE001 - as below
            return {}

else:

    def _of_class(kind: type) -> dict[str, Any]:
        found: dict[str, Any] = members_of(kind).get("__annotations__", {})
        return found

    def _of_function(function: types.FunctionType) -> dict[str, Any]:
        return function.__annotations__


def _evaluated(hint: Any, scope: dict[str, Any], inner: dict[str, Any]) -> Any:
    try:
        if isinstance(hint, str) and not all(
            isinstance(part, _NAMING) for part in ast.walk(ast.parse(hint, mode="eval"))
        ):
            return None
        holder = types.SimpleNamespace(__annotations__={"it": hint})
        return typing.get_type_hints(holder, scope, inner)["it"]
    except Exception:  # noqa: BLE001 - annotations are the user's expressions
        return None


def is_inert(hint: Any, _around: tuple[type, ...] = ()) -> bool:
    """Tell whether values of a type can be built from plain data without calling any code of the type's own."""
    if hint is Any or any(hint is each for each in (*_PLAIN, *_CONTAINERS, *_around)):
        return True
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return True
    if any(origin is each for each in (typing.Union, types.UnionType, *_CONTAINERS)):
        return all(part is ... or is_inert(part, _around) for part in typing.get_args(hint))
    if type(hint) is EnumType:
        return not any("_missing_" in members_of(each) for each in _written(hint))
    if not issubclass(type(hint), type):
        return False
    fields = _fields(hint)
    return fields is not None and all(is_inert(field, (*_around, hint)) for field in fields)


def _fields(kind: type) -> list[Any] | None:
    """Return the types of the fields of a class whose construction runs no code of its own; None for any other."""
    if type(kind) is type and dataclasses.is_dataclass(kind):
        generated: frozenset[str] = frozenset({"__init__"})
        if kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            generated |= {"__setattr__"}
    elif type(kind) is type(msgspec.Struct) and issubclass(kind, msgspec.Struct):
        generated = frozenset()
    elif type(kind) is type and mro_of(kind)[1:] == (tuple, object) and "_fields" in members_of(kind):
        generated = frozenset({"__new__"})
    else:
        return None
    if any(hook in members_of(each) and hook not in generated for each in _written(kind) for hook in _HOOKS):
        return None
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - as above
        return None
    if any(type(members_of(each).get(name)) is property for each in _written(kind) for name in hints):
        return None
    return list(hints.values())


def _written(kind: type) -> Iterator[type]:
    """Yield the classes that a user wrote, of those that a class is made of."""
    return (each for each in mro_of(kind) if members_of(each).get("__module__") not in _NOT_WRITTEN)


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal, and of equal types all the way down."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        return same([*one.items()], [*other.items()])
    if kind in (list, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if kind in (set, frozenset):
        return bool(one == other) and sorted(map(_kind, one)) == sorted(map(_kind, other))
    if kind is float:
        return repr(one) == repr(other)
    names = _field_names(one)
    return bool(one == other) if names is None else all(same(getattr(one, n), getattr(other, n)) for n in names)


def _field_names(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    return [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else None


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
