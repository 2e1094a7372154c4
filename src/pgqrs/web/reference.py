"""docs/reference/http.md, made from the table of routes: `python -m pgqrs.web.reference > docs/reference/http.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from pgqrs.web import openapi
from pgqrs.web.application import endpoints
from pgqrs.web.routing import Endpoint, Items

HEAD = """# HTTP API

Made from the table of routes by `python -m pgqrs.web.reference`; a test fails when it is stale. How to serve it, who
may ask and how errors look: [the guide](../guides/http.md). The same as OpenAPI 3.1 is at `/openapi.json`.

Bodies are JSON, names snake_case, times RFC 3339 in UTC, lengths of time seconds. What a command prints with
`-o json` is what its route answers with. Lists answer with `items`, and with `next_cursor` where there are pages:
give it as `cursor` for the next one; after the last it is null. Every problem is `application/problem+json` with
`code`, `detail` and mostly a `hint`. Every GET route answers HEAD, too.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_parts()]).rstrip() + "\n"


def _parts() -> Iterator[str]:
    noun = ""
    for endpoint in endpoints(dashboard=False):
        found = openapi.noun_of(endpoint)
        if found != noun:
            noun = found
            yield f"## {noun.capitalize()}\n"
        yield "\n".join(_route(endpoint)) + "\n"


def _route(endpoint: Endpoint) -> Iterator[str]:
    yield f"### `{endpoint.method} {endpoint.path}`\n"
    scope = "Open to all." if endpoint.scope is None else f"Scope `{endpoint.scope.value}`."
    limited = " Counts against the caller's rate." if endpoint.limited else ""
    yield f"{endpoint.summary}. {scope}{limited}"
    if endpoint.query is not None and (said := _said(endpoint.query)):
        yield f"\n{said}"
    if endpoint.headers or endpoint.query is not None:
        yield "\n| parameter | in | default | |\n|---|---|---|---|"
        for name, meaning in endpoint.headers:
            yield f"| `{name}` | header | | {meaning} |"
        if endpoint.query is not None:
            for field in msgspec.structs.fields(endpoint.query):
                yield f"| `{field.encode_name}` | query | {_default(field)} | {_type(field.type)} |"
    if endpoint.takes is not None:
        fields = msgspec.structs.fields(endpoint.takes)
        yield f"\nTakes {'an object' if fields else 'nothing'}. {_said(endpoint.takes)}".rstrip()
        if fields:
            yield "\n| field | default | |\n|---|---|---|"
            for field in fields:
                yield f"| `{field.encode_name}` | {_default(field)} | {_type(field.type)} |"
    yield f"\nAnswers {endpoint.status} with {_gives(endpoint)}."


def _said(kind: type[msgspec.Struct]) -> str:
    """The words of the class itself, not of the one that it comes from."""
    return " ".join((vars(kind).get("__doc__") or "").split())


def _default(field: Any) -> str:
    if field.required:
        return "(needed)"
    return "" if field.default in (None, msgspec.UNSET) else f"`{msgspec.json.encode(field.default).decode()}`"


def _type(kind: Any) -> str:
    schema = openapi.Schemas().of(kind)
    if not schema:
        return "any JSON"
    if "anyOf" in schema:
        return " or ".join(_word(each) for each in schema["anyOf"] if each.get("type") != "null")
    return _word(schema)


def _word(schema: dict[str, Any]) -> str:
    kinds = schema.get("type", "object")
    word = " or ".join(each for each in ([kinds] if isinstance(kinds, str) else kinds) if each != "null")
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("format") == "date-time":
        return "time, RFC 3339"
    least = schema.get("minimum")
    most = schema.get("maximum")
    if least is not None and most is not None:
        return f"{word}, {least:,} to {most:,}"
    return "list of ids" if word == "array" else word


def _gives(endpoint: Endpoint) -> str:
    given = endpoint.gives
    if endpoint.media != "application/json":
        return f"`{endpoint.media}`"
    if given is Any:
        return "any JSON"
    if given is None or given is dict:
        return "an object"
    kind = given.of if isinstance(given, Items) else given
    schemas = openapi.Schemas()
    schemas.of(kind)
    names = ", ".join(f"`{name}`" for name in schemas.found[kind.__name__]["properties"])
    if isinstance(given, Items):
        return f"a list{', in pages,' if given.paged else ''} of {_plain(kind)}: {names}"
    return f"{_plain(kind)}: {names}"


def _plain(kind: Any) -> str:
    """RunSummary as `run summary`."""
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()
    return {"run row": "the run", "step row": "steps"}.get(words, words)


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - that is what it is for
