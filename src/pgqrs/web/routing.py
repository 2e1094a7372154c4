"""The table of routes, each with its scope and shapes: guarding, read-only mode and OpenAPI read one list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pgqrs.api.bodies import body
from pgqrs.web.access import FORM_TOKEN, SAFE, Access, Caller, Scope, check_on_purpose
from pgqrs.web.problems import Problem, problem_of

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# A request that asks for more than this is answered with 503; a list that is slower is a list nobody waits for.
MOST_SECONDS = 10.0
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
# As many runs as a page shows can be ticked, and then some.
MOST_FIELDS = 300


@dataclass(slots=True)
class Asked:
    """A request, once it is known who asks and what: what handlers get."""

    request: Request
    store: Store
    access: Access
    caller: Caller
    query: Any = None
    body: Any = None

    @property
    def actor(self) -> str:
        """Who did it, for the history."""
        return self.caller.name

    def path(self, name: str) -> Any:
        return self.request.path_params[name]


@dataclass(slots=True)
class Answer:
    """What a handler gives when 200 and JSON are not enough."""

    thing: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Asked], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of the table. What it takes and gives are types; a handler gets the first two checked."""

    method: str
    path: str
    handler: Handler
    # None: open to whoever passes the Host check (health, log-in, what a page needs before one has logged in).
    scope: Scope | None
    summary: str
    query: type[msgspec.Struct] | None = None
    takes: type[msgspec.Struct] | None = None
    gives: Any = None
    status: int = 200
    seconds: float = MOST_SECONDS
    # A page or a form of the dashboard: answers with HTML, and its problems too.
    page: bool = False

    @property
    def changes(self) -> bool:
        return self.method not in SAFE


# How a problem is shown: as JSON here, as a page by the dashboard.
Show = Callable[[Request, Problem], Awaitable[Response]]


def routes_of(endpoints: Iterable[Endpoint], store: Store, access: Access, show: Show) -> list[Route]:
    """The table as routes; every request passes `_answer`, there is no other way to a handler."""

    def made(endpoint: Endpoint) -> Route:
        async def answer(request: Request) -> Response:
            try:
                async with asyncio.timeout(endpoint.seconds):
                    return await _answer(endpoint, request, store, access)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:  # noqa: BLE001 - the one place where any error becomes an answer
                problem = problem_of(error)
                return await show(request, problem) if endpoint.page else problem.response()

        return Route(endpoint.path, answer, methods=[endpoint.method], name=f"{endpoint.method} {endpoint.path}")

    return [made(each) for each in endpoints]


async def _answer(endpoint: Endpoint, request: Request, store: Store, access: Access) -> Response:
    caller = await _admitted(endpoint, request, access)
    asked = Asked(request, store, access, caller)
    form: dict[str, Any] | None = None
    if endpoint.changes:
        form = await _form(request) if _content_type(request) == FORM else None
        check_on_purpose(request, caller, access, None if form is None else form.pop(FORM_TOKEN, None))
        asked.body = form if form is not None and endpoint.page else await _body(endpoint, request, form)
    if endpoint.query is not None:
        asked.query = _converted(_pairs(request), endpoint.query, "query")
    given = await endpoint.handler(asked)
    if isinstance(given, Response):
        return given
    answer = given if isinstance(given, Answer) else Answer(given, endpoint.status)
    text = json.dumps(body(answer.thing), ensure_ascii=False)
    return Response(text, answer.status, answer.headers, JSON)


_NOBODY = Caller("nobody", frozenset())


async def _admitted(endpoint: Endpoint, request: Request, access: Access) -> Caller:
    """Who asks, if they may: known, with the scope, and not changing anything where only reading is allowed."""
    caller = await access.caller_of(request)
    if endpoint.scope is None:
        return caller or _NOBODY
    if caller is None:
        raise Problem(401, "unauthorized", "say who you are", hint="Authorization: Bearer <token>", headers=_ASK)
    if endpoint.changes and access.read_only:
        raise Problem(403, "read-only", "this server only shows; nothing was done", hint="pgqrs serve --actions")
    if not caller.may(endpoint.scope):
        raise Problem(403, "forbidden", f"this needs the scope {endpoint.scope.value!r}", needed=endpoint.scope.value)
    return caller


_ASK = {"www-authenticate": 'Bearer realm="pgqrs"'}


async def _body(endpoint: Endpoint, request: Request, form: dict[str, Any] | None) -> Any:
    if endpoint.takes is None:
        return None
    if form is not None:
        raise Problem(415, "content-type", f"the body must be {JSON}")
    raw = await request.body()
    if raw and _content_type(request) != JSON:
        raise Problem(415, "content-type", f"the body must be {JSON}")
    return _converted(_parsed(raw) if raw else {}, endpoint.takes, "body")


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Problem(400, "bad-json", f"the body is no JSON that we take: {detail}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _converted(given: Any, shape: type[msgspec.Struct], where: str) -> Any:
    try:
        return msgspec.convert(given, shape, strict=where == "body")
    except (msgspec.ValidationError, RecursionError) as error:
        raise Problem(422, "bad-request", f"{where}: {error}") from None


def _pairs(request: Request) -> dict[str, Any]:
    """Query parameters; one that is there twice is refused, as nobody can know which was meant."""
    found: dict[str, Any] = {}
    for key, value in request.query_params.multi_items():
        if key in found:
            raise Problem(422, "bad-request", f"query: {key!r} is there twice")
        found[key] = value
    return found


async def _form(request: Request) -> dict[str, Any]:
    """The fields of a form; of one that is there twice (ticked boxes) all, as a list."""
    try:
        text = (await request.body()).decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise Problem(400, "bad-form", "the form cannot be read") from None
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = (
            [*found[key], value]
            if isinstance(found.get(key), list)
            else ([found[key], value] if key in found else value)
        )
    return found


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
