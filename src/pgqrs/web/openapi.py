"""OpenAPI 3.1, made from the table of routes: what is not in the table is not served, and what is, is described."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
import types
import typing
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Union

import msgspec

from pgqrs.api.operations.json_view import TEXTS
from pgqrs.db.tables.runs import RunRow, StepRow
from pgqrs.types import DeadLetter, Event, OutboxEvent, QueuedMessage, RunSummary, Schedule
from pgqrs.web.api.shapes import Id, Name, Time
from pgqrs.web.auth.access import Scope
from pgqrs.web.problems import CONTENT_TYPE
from pgqrs.web.request_body import JSON
from pgqrs.web.routing import Endpoint, Items, RequestContext

# What a part of a path is, where it is not just some text.
_PARTS: dict[str, Any] = {"run_id": Id, "worker_id": Id, "workflow": Name, "queue": Name, "schedule": Name}
_SOME_TEXT = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1})]
_PARAMETER = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{name}"
# msgspec describes a time without a zone as text, and a length of time as ISO 8601 writes it.
_WRITTEN: dict[Any, Any] = {
    datetime: Time,
    timedelta: Annotated[float, msgspec.Meta(description="Seconds")],
}
# What lists cut, where its texts are long.
_CUT = frozenset({RunSummary, StepRow, Event, QueuedMessage, DeadLetter, OutboxEvent, Schedule})
_TRUNCATED = Annotated[
    list[str],
    msgspec.Meta(description="Fields of which only the beginning is shown, as text; a smaller limit shows more"),
]


def _at_times(kind: Any, description: str | None = None) -> tuple[Any, Any]:
    """A field that not every problem has, and its default."""
    return Annotated[kind, msgspec.Meta(description=description)] | msgspec.UnsetType, msgspec.UNSET


_PROBLEM = msgspec.defstruct(
    "Problem",
    [
        ("type", str),
        ("title", str),
        ("status", int),
        ("code", str),
        ("detail", str),
        ("hint", *_at_times(str)),
        ("error_id", *_at_times(str, "Under this id the server's log has what happened.")),
        ("needed", *_at_times(str, "The scope that is missing.")),
        ("current_status", *_at_times(str, "Of the run whose state forbids it.")),
        ("allowed_actions", *_at_times(list[str], "What may be done instead.")),
    ],
    namespace={"__doc__": "RFC 9457. `code` is stable; `hint` is the way out, where there is one."},
)


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
            "schemas": dict(sorted(schemas.found.items())),
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
        "content": {CONTENT_TYPE: {"schema": schemas.of(_PROBLEM)}},
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

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema; those that it refers to are in `found`."""
        if isinstance(kind, Items):
            return self._items(kind)
        [schema], components = msgspec.json.schema_components([_written(kind)], ref_template=_REF)
        for name, component in components.items():
            if "description" in component:
                component["description"] = " ".join(component["description"].split())
            if self.found.setdefault(name, component) != component:
                raise ValueError(f"two types are called {name}: the document would describe one as the other")
        return schema

    def _items(self, kind: Items) -> dict[str, Any]:
        properties = {"items": {"type": "array", "items": self.of(kind.of)}}
        if kind.paged:
            properties["next_cursor"] = {"type": ["string", "null"]}
        return {"type": "object", "required": list(properties), "properties": properties}


def _written(kind: Any) -> Any:
    """The type as it stands in an answer, where `bodies.body` writes it in another way than msgspec."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _record(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is None or origin is typing.Literal:
        return _WRITTEN.get(kind, kind)
    if origin is typing.Annotated:
        return Annotated[(_written(arguments[0]), *arguments[1:])]
    written = tuple(map(_written, arguments))
    return functools.reduce(operator.or_, written) if origin in (Union, types.UnionType) else origin[written]


@functools.cache
def _record(kind: Any) -> type[msgspec.Struct]:
    """A row or a report as a struct: all of its fields are there, and values of users are any JSON."""
    hints = typing.get_type_hints(kind)
    fields: list[Any] = []
    for field in dataclasses.fields(kind):
        name = field.name.removesuffix("_text")
        stored = name != field.name or name in TEXTS.get(kind, ())
        fields.append((name, Any if stored else _written(hints[name])))
    if kind in (RunRow, RunSummary):
        fields.append(("allowed_actions", list[str]))
    if kind in _CUT:
        fields.append(("truncated", _TRUNCATED | msgspec.UnsetType, msgspec.UNSET))
    text = vars(kind).get("__doc__") or ""
    # A dataclass without words of its own gets its signature.
    words = None if text.startswith(f"{kind.__name__}(") else text
    return msgspec.defstruct(kind.__name__, fields, namespace={"__doc__": words}, module=kind.__module__)
