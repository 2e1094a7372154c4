"""What a workflow takes, as JSON schema: for forms that start a run, and for checks where its code is not at hand."""

from __future__ import annotations

import functools
import inspect
import json
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, get_args, get_origin
from uuid import UUID

import msgspec

from pgqrs.engine.definitions.handlers import Handler, with_article
from pgqrs.errors import SerializationError
from pgqrs.serialization import decode, encode, from_parsed, parsed
from pgqrs.text.durations import shown

# A form of more than this is no help.
_MOST_CHARACTERS = 20_000
# What says that a schema is one of arguments by name. Earlier versions stored that of a single argument as it is.
BY_NAME = "x-pgqrs-arguments"
# Deeper down, a worker is told by its own types.
_MOST_DEPTH = 20
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "integer": ("an int", (int, float)),
    "number": ("a float", (int, float)),
    "string": ("a str", (str,)),
    "boolean": ("a bool", (bool,)),
    "array": ("a list", (list,)),
    "object": ("a dict", (dict,)),
    "null": ("None", (type(None),)),
}
# Texts that stand for values of other types, by the schema's format: the type, and one that is right.
_WRITTEN: dict[str, tuple[type, str]] = {
    "decimal": (Decimal, "12.50"),
    "date-time": (datetime, "2030-01-31T12:00:00Z"),
    "date": (date, "2030-01-31"),
    "time": (time, "12:00:00"),
    "duration": (timedelta, "PT90S"),
    "uuid": (UUID, "6f1f7d5c-2f0b-4f6e-9a51-0a4e3f0c9b7d"),
    "base64": (bytes, "aGVsbG8="),
}


def input_schema(handler: Handler) -> str:
    """Return the schema of the handler's arguments by name; a parameter without a known type fits anything."""
    parts, defined = _parts(handler)
    text = _text(handler, parts, defined)
    if len(text) > _MOST_CHARACTERS:
        text = _text(handler, {}, {})
    return text


def _text(handler: Handler, parts: dict[str, Any], defined: dict[str, Any]) -> str:
    whole: dict[str, Any] = {
        BY_NAME: True,
        "type": "object",
        "properties": {name: parts.get(name, {}) for name in handler.names},
        "required": [name for name in handler.names if name in handler.required],
        "additionalProperties": False,
    }
    return json.dumps({**whole, "$defs": defined} if defined else whole, ensure_ascii=False)


def _parts(handler: Handler) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of the parameters that have one, with their defaults, and what these refer to."""
    kinds = {name: handler.types[name] for name in handler.names if _has_schema(handler.types.get(name, Any))}
    # Together: two classes of one name get two definitions.
    schemas, defined = msgspec.json.schema_components(kinds.values(), ref_template="#/$defs/{name}")
    parts: dict[str, Any] = {
        name: _with_format(kinds[name], schema) for name, schema in zip(kinds, schemas, strict=True)
    }
    for parameter in handler.parameters:
        default = parameter.default
        if default is not inspect.Parameter.empty and isinstance(default, str | int | float | bool | None):
            parts.setdefault(parameter.name, {})["default"] = default
    try:
        json.dumps([parts, defined], allow_nan=False)
    except (TypeError, ValueError):
        # A default somewhere inside that is no JSON.
        return {}, {}
    return parts, defined


def _with_format(kind: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a time says no format unless its zone is prescribed; deeper than this, a worker tells."""
    if kind in (datetime, time):
        return {**schema, "format": "date-time" if kind is datetime else "time"}
    inner = [each for each in get_args(kind) if each in (datetime, time)]
    if len(inner) != 1:
        return schema
    if "anyOf" in schema:
        arms = [_with_format(inner[0], arm) if arm == {"type": "string"} else arm for arm in schema["anyOf"]]
        return {**schema, "anyOf": arms}
    return {**schema, "items": _with_format(inner[0], schema["items"])} if get_origin(kind) is list else schema


def _has_schema(kind: Any) -> bool:
    """No schema tells of Any, and of classes that only the user knows."""
    if kind is Any:
        return False
    try:
        msgspec.json.schema(kind)
    except Exception:  # noqa: BLE001 - a hook of the user's class may raise anything
        return False
    return True


@dataclass(frozen=True, slots=True)
class StoredSignature:
    """What a worker has stored of its handler's parameters."""

    workflow: str
    schema: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema["properties"])

    @property
    def required(self) -> frozenset[str]:
        return frozenset(self.schema["required"])

    def misfit(self, name: str, text: str) -> str | None:
        found = _misfit(parsed(text), self.schema["properties"][name], self.schema, "$", _MOST_DEPTH)
        if found is None:
            return None
        path, expected, value = found
        where = "" if path == "$" else f"{path}: "
        return f"{where}must be {expected}, got {shown(_decoded(value))}"


@functools.lru_cache(maxsize=256)
def stored_signature(workflow: str, text: str | None) -> StoredSignature | None:
    """None for a text that tells nothing of parameters: none, an earlier version's, or anybody's."""
    try:
        schema = json.loads(text or "null")
        if schema[BY_NAME] is not True:
            return None
        names, required = schema["properties"], schema["required"]
    except (ValueError, KeyError, TypeError):
        return None
    known = isinstance(names, dict) and isinstance(required, list) and names.keys() >= set(required)
    return StoredSignature(workflow, schema) if known else None


def _misfit(value: Any, schema: Any, whole: dict[str, Any], path: str, depth: int) -> tuple[str, str, Any] | None:
    """Path, what is expected there and what is there: only what no reader would take. Tags are left to the reader."""
    schema = _resolved(schema, whole)
    if depth == 0 or not schema or _is_tag(value):
        return None
    if "anyOf" in schema:
        tried = [_misfit(value, each, whole, path, depth - 1) for each in schema["anyOf"]]
        if None in tried:
            return None
        return path, " or ".join(_named(each, whole) for each in schema["anyOf"]), value
    if "enum" in schema and value not in schema["enum"]:
        return path, "one of " + ", ".join(map(repr, schema["enum"])), value
    if not _is_of_type(value, schema) or not _can_be_read(value, schema):
        return path, _named(schema, whole), value
    return _misfit_inside(value, schema, whole, path, depth)


def _misfit_inside(
    value: Any, schema: dict[str, Any], whole: dict[str, Any], path: str, depth: int
) -> tuple[str, str, Any] | None:
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", ()):
            if name not in value:
                return path, f"{_named(schema, whole)} with {name!r}", value
        inside = [
            (f"{path}.{name}", each, properties.get(name, others if isinstance(others, dict) else {}))
            for name, each in value.items()
        ]
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        inside = [(f"{path}[{index}]", each, schema["items"]) for index, each in enumerate(value)]
    else:
        return None
    found = (_misfit(each, part, whole, where, depth - 1) for where, each, part in inside)
    return next((each for each in found if each is not None), None)


def _is_of_type(value: Any, schema: dict[str, Any]) -> bool:
    kind = str(schema.get("type"))
    if kind not in _TYPES:
        return True
    _, classes = _TYPES[kind]
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return False
    # A Decimal is also read from a number.
    return isinstance(value, classes) or (schema.get("format") == "decimal" and isinstance(value, int | float))


def _can_be_read(value: Any, schema: dict[str, Any]) -> bool:
    written = _WRITTEN.get(_format(schema))
    if written is None or not isinstance(value, str):
        return True
    try:
        from_parsed(value, written[0], tagged=False)
    except SerializationError:
        return False
    return True


def _format(schema: dict[str, Any]) -> str:
    return str(schema.get("contentEncoding", schema.get("format")))


def _is_tag(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and str(next(iter(value))).startswith("$")


def _named(schema: Any, whole: dict[str, Any]) -> str:
    schema = _resolved(schema, whole)
    if "title" in schema:
        return with_article(str(schema["title"]))
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    if (written := _WRITTEN.get(_format(schema))) is not None:
        kind, right = written
        return f"{with_article(kind.__name__)} such as {right!r}"
    return _TYPES.get(schema.get("type", ""), ("something else",))[0]


def _resolved(schema: Any, whole: dict[str, Any]) -> dict[str, Any]:
    """What a `$ref` into the schema's own definitions stands for; nothing at all for what cannot be read."""
    if not isinstance(schema, dict):
        return {}
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found = whole.get("$defs", {}).get(str(reference).rpartition("/")[2], {})
    return found if isinstance(found, dict) else {}


def _decoded(value: Any) -> Any:
    return decode(encode(value)) if isinstance(value, dict | list) else value
