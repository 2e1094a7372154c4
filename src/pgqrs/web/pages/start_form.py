"""A form that starts a run, made from the schema of the workflow's input; a box for JSON where there is none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgqrs.engine.definitions.input_schema import BY_NAME
from pgqrs.inputs import Typed
from pgqrs.web.pages.confirm import Unclear, text, value
from pgqrs.web.routing import RequestContext

# More fields than this are better written as JSON.
_MOST_FIELDS = 30
_PLAIN = frozenset({"string", "integer", "number", "boolean"})
# What the names of the form's fields begin with, so that none is taken for another.
PREFIX = "field."


@dataclass(frozen=True, slots=True)
class InputField:
    """A property of the input. `kind` is a type of JSON schema, or `any` for what is written as JSON."""

    name: str
    kind: str
    hint: str
    required: bool = False
    choices: tuple[str, ...] = ()


def fields_of(schema_text: str | None) -> list[InputField]:
    """The parameters; of a workflow with one, the fields of its value. None for what cannot be drawn as fields."""
    try:
        whole = json.loads(schema_text or "null")
        schema = _resolved(whole, whole)
        if schema.get(BY_NAME) and len(schema["properties"]) == 1:
            [only] = schema["properties"].values()
            inner = _resolved(only, whole)
            # A value without known fields is written as JSON.
            schema = schema if inner.get("type") in _PLAIN else inner
        properties: dict[str, Any] = schema["properties"]
        if len(properties) > _MOST_FIELDS:
            return []
        return [_field(name, _resolved(part, whole), schema.get("required", ())) for name, part in properties.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        # The column may hold anything.
        return []


def _field(name: str, schema: dict[str, Any], required: Sequence[str]) -> InputField:
    kind = str(schema.get("type", "any"))
    choices = tuple(each for each in schema.get("enum", ()) if isinstance(each, str))
    told = [str(schema.get("format") or kind) if kind in _PLAIN else "JSON"]
    if "default" in schema:
        told.append(f"default {json.dumps(schema['default'])}")
    elif name not in required:
        told.append("may be left out")
    return InputField(
        name, "choice" if choices else kind if kind in _PLAIN else "any", ", ".join(told), name in required, choices
    )


def _resolved(part: Any, whole: Any) -> dict[str, Any]:
    """What a `$ref` into the schema's own definitions stands for."""
    reference = part.get("$ref")
    if reference is None:
        return dict(part)
    found = whole["$defs"][str(reference).rpartition("/")[2]]
    return dict(found)


def input_of(asked: RequestContext, fields: Sequence[InputField]) -> Any:
    """What the form gives; Unclear names what cannot be read."""
    if not fields:
        return value(asked, "input")
    found = Typed()
    for field in fields:
        given = text(asked, PREFIX + field.name)
        if given is not None:
            found[field.name] = _read(asked, field, given)
        elif field.required:
            raise Unclear(f"{field.name} is missing.")
    return found


def _read(asked: RequestContext, field: InputField, given: str) -> Any:
    match field.kind:
        case "string" | "choice":
            return given
        case "boolean":
            return given == "true"
        case "integer" | "number":
            try:
                return int(given) if field.kind == "integer" else float(given)
            except ValueError:
                raise Unclear(f"{field.name} is no {field.kind}: {given[:100]!r}") from None
    return value(asked, PREFIX + field.name)
