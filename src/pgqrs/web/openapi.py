"""OpenAPI 3.1, made from the table of routes: what is not in the table is not served, and what is, is described."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Union

import msgspec

from pgqrs.api.operations.json_view import TEXTS
from pgqrs.db.tables.runs import RunRow, StepRow
from pgqrs.types import DeadLetter, Event, OutboxEvent, QueuedMessage, RunSummary, Schedule
from pgqrs.web.api.shapes import Id, Name
from pgqrs.web.auth.access import Scope
from pgqrs.web.problems import CONTENT_TYPE
from pgqrs.web.request_body import JSON
from pgqrs.web.routing import Endpoint, Items, RequestContext

# What a part of a path is, where it is not just some text.
_PARTS: dict[str, Any] = {"run_id": Id, "worker_id": Id, "workflow": Name, "queue": Name, "schedule": Name}
_SOME_TEXT = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1})]
_PARAMETER = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{name}"
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
    datetime: {"type": "string", "format": "date-time"},
    # As bodies.py has it.
    timedelta: {"type": "number", "description": "Seconds"},
    type(None): {"type": "null"},
}
# What lists cut, where its texts are long.
_CUT = frozenset({RunSummary, StepRow, Event, QueuedMessage, DeadLetter, OutboxEvent, Schedule})
_PROBLEM = {
    "type": "object",
    "description": "RFC 9457. `code` is stable; `hint` is the way out, where there is one.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "error_id": {"type": "string", "description": "Under this id the server's log has what happened."},
        "needed": {"type": "string", "description": "The scope that is missing."},
        "current_status": {"type": "string", "description": "Of the run whose state forbids it."},
        "allowed_actions": {"type": "array", "items": {"type": "string"}, "description": "What may be done instead."},
    },
}


def endpoints() -> tuple[Endpoint, ...]:
    return (Endpoint("GET", "/openapi.json", show, Scope.READ, "This API as OpenAPI 3.1", gives=dict),)


async def show(asked: RequestContext) -> dict[str, Any]:
    found = _document()
    root = asked.url("")
    return {**found, "servers": [{"url": root}]} if root else found


@functools.cache
def _document() -> dict[str, Any]:
    from pgqrs.web.application import endpoints as every  # noqa: PLC0415 - it needs this module

    return document(every(dashboard=False))


def document(table: Iterable[Endpoint]) -> dict[str, Any]:
    """The whole of it; pages for people are left out."""
    from pgqrs import __version__  # noqa: PLC0415 - the package imports nothing of ours at its head

    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in table:
        if not endpoint.page:
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pgqrs",
            "version": __version__,
            "summary": "Durable workflows and queues on the database you already have.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, **dict(sorted(schemas.found.items()))},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`pgqrs token create NAME --scope read`",
                },
            },
        },
    }


def _operation(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "tags": [noun_of(endpoint)],
        "parameters": list(_parameters(endpoint, schemas)),
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.scope is not None:
        found["security"] = [{"token": [endpoint.scope.value]}]
    else:
        found["security"] = []
    if endpoint.takes is not None:
        needed = any(field.required for field in msgspec.structs.fields(endpoint.takes))
        found["requestBody"] = {
            "required": needed,
            "content": {JSON: {"schema": schemas.of(endpoint.takes)}},
        }
    return found


def operation_id(endpoint: Endpoint) -> str:
    """`get_runs_steps` for GET /api/v1/runs/{run_id}/steps."""
    words = [part for part in endpoint.path.removeprefix("/api/v1").split("/") if part]
    named = ["one" if part.startswith("{") and at == len(words) - 1 else part for at, part in enumerate(words)]
    return "_".join([endpoint.method.lower(), *(re.sub(r"\W", "_", part) for part in named if "{" not in part)])


def noun_of(endpoint: Endpoint) -> str:
    parts = endpoint.path.split("/")
    return parts[3] if endpoint.path.startswith("/api/v1/") else "service"


def _parameters(endpoint: Endpoint, schemas: Schemas) -> Iterable[dict[str, Any]]:
    for name in _PARAMETER.findall(endpoint.path):
        yield {"name": name, "in": "path", "required": True, "schema": schemas.of(_PARTS.get(name, _SOME_TEXT))}
    for name, meaning in endpoint.headers:
        yield {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": meaning}
    if endpoint.query is not None:
        for field in msgspec.structs.fields(endpoint.query):
            schema = dict(schemas.of(field.type))
            if field.default not in (msgspec.NODEFAULT, None):
                schema["default"] = field.default
            yield {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema}


def _responses(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    problem = {
        "description": "A problem",
        "content": {CONTENT_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }
    schema = {} if endpoint.gives is None else schemas.of(endpoint.gives)
    good: dict[str, Any] = {"description": endpoint.summary, "content": {endpoint.media: {"schema": schema}}}
    found = {str(endpoint.status): good, "default": problem}
    if endpoint.status == 201:
        good["headers"] = {"Location": {"description": "Where it is", "schema": {"type": "string"}}}
        # A second time it is there already.
        found = {"200": good, **found}
    if endpoint.meanwhile is not None:
        found["202"] = {
            "description": "It is still under way",
            "headers": {
                "Retry-After": {"description": "Ask again after so many seconds", "schema": {"type": "integer"}}
            },
            "content": {JSON: {"schema": schemas.of(endpoint.meanwhile)}},
        }
    return found


class Schemas:
    """Types as JSON schemas, as `bodies.body` writes their values and `msgspec.convert` reads them."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:  # noqa: PLR0911 - a kind, a line
        if kind is Any:
            return {}
        if isinstance(kind, Items):
            return self._items(kind)
        if kind in _PLAIN:
            return _PLAIN[kind]
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return {**self.of(arguments[0]), **_bounds(arguments[1:], typing.get_origin(arguments[0]))}
        if origin in (Union, types.UnionType):
            return self._union([each for each in arguments if each is not msgspec.UnsetType])
        if origin is typing.Literal:
            return {"type": "string", "enum": list(arguments)}
        if origin in (list, tuple, Sequence):
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"type": "string", "enum": [each.value for each in kind]}
        return self._named(kind)

    def _items(self, kind: Items) -> dict[str, Any]:
        properties = {"items": {"type": "array", "items": self.of(kind.of)}}
        if kind.paged:
            properties["next_cursor"] = {"type": ["string", "null"]}
        return {"type": "object", "required": list(properties), "properties": properties}

    def _union(self, kinds: Sequence[Any]) -> dict[str, Any]:
        schemas = [self.of(each) for each in kinds]
        if {} in schemas:
            return {}
        simple = [each for each in schemas if set(each) == {"type"} and isinstance(each["type"], str)]
        if len(simple) == len(schemas):
            return {"type": [each["type"] for each in simple]}
        return {"anyOf": schemas}

    def _named(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__
        if name not in self.found:
            # Before it is filled: it may hold itself.
            self.found[name] = {}
            filled = self._struct(kind) if issubclass(kind, msgspec.Struct) else self._record(kind)
            self.found[name].update(filled)
        return {"$ref": _REF.format(name=name)}

    def _struct(self, kind: Any) -> dict[str, Any]:
        fields = msgspec.structs.fields(kind)
        properties = {field.encode_name: dict(self.of(field.type)) for field in fields}
        for field in fields:
            if field.default not in (msgspec.NODEFAULT, msgspec.UNSET, None):
                properties[field.encode_name]["default"] = field.default
        return {
            "type": "object",
            **_said(kind),
            "required": [field.encode_name for field in fields if field.required],
            "properties": properties,
            "additionalProperties": False,
        }

    def _record(self, kind: Any) -> dict[str, Any]:
        hints = typing.get_type_hints(kind)
        properties: dict[str, Any] = {}
        for field in dataclasses.fields(kind):
            name = field.name.removesuffix("_text")
            # Values of users: any JSON.
            stored = name != field.name or name in TEXTS.get(kind, ())
            properties[name] = {} if stored else self.of(hints[name])
        if kind in (RunRow, RunSummary):
            properties["allowed_actions"] = {"type": "array", "items": {"type": "string"}}
        required = list(properties)
        if kind in _CUT:
            properties["truncated"] = {
                "type": "array",
                "items": {"type": "string"},
                "description": "Fields of which only the beginning is shown, as text; a smaller limit shows more",
            }
        return {"type": "object", **_said(kind), "required": required, "properties": properties}


def _said(kind: Any) -> dict[str, str]:
    """The class's own first words, for people."""
    text = vars(kind).get("__doc__") or ""
    # A dataclass without words of its own gets its signature.
    return {} if not text or text.startswith(f"{kind.__name__}(") else {"description": " ".join(text.split())}


def _bounds(given: Iterable[Any], origin: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for meta in given:
        names = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
        names["max_length"] = "maxItems" if origin is list else "maxLength"
        found |= {new: value for old, new in names.items() if (value := getattr(meta, old)) is not None}
        found |= meta.extra_json_schema or {}
    return found
