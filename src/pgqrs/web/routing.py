"""The table of routes, each with its scope and shapes: guarding, read-only mode and OpenAPI read one list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pgqrs.api.bodies import body
from pgqrs.web.access import FORM_TOKEN, SAFE, Access, Caller, Scope, check_on_purpose
from pgqrs.web.problems import Problem, as_json, problem_of
from pgqrs.web.reading import FORM, JSON, content_type, converted, form_fields, json_body, query_pairs

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# What the programs of others did through HTTP, a line each: runs have it in their history, too.
audit = logging.getLogger("pgqrs.audit")

# A request that asks for more than this is answered with 503; a list that is slower is a list nobody waits for.
MOST_SECONDS = 10.0


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

    def number(self, name: str) -> int:
        """An id of the path; what cannot be one names nothing."""
        text = str(self.path(name))
        if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63:
            return int(text)
        raise Problem(404, "not-found", f"{text[:40]!r} is no id", hint="ids are numbers")

    def url(self, path: str) -> str:
        """A path of ours as a client reaches it, wherever we are mounted."""
        return str(self.request.scope.get("root_path", "")) + path


@dataclass(slots=True)
class Answer:
    """What a handler gives when 200 and JSON are not enough."""

    thing: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Asked], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Items:
    """What a list gives, for the table: `items` of a kind, and `next_cursor` where there are pages."""

    of: Any
    paged: bool = False


def items(found: Iterable[Any], **more: Any) -> dict[str, Any]:
    """A list as every list is answered."""
    return {"items": list(found), **more}


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
    # What a 202 gives: it is under way.
    meanwhile: Any = None
    seconds: float = MOST_SECONDS
    # A page or a form of the dashboard: answers with HTML, and its problems too.
    page: bool = False
    # Adds work: as often as the caller's rate allows.
    limited: bool = False
    # What it answers with when that is not JSON.
    media: str = JSON
    # Request headers that it reads, and what for.
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def changes(self) -> bool:
        return self.method not in SAFE


# How a problem is shown: as JSON here, as a page by the dashboard.
Show = Callable[[Request, Problem], Awaitable[Response]]


def routes_of(endpoints: Iterable[Endpoint], store: Store, access: Access, show: Show) -> list[Route]:
    """The table as routes; every request passes `_answer`, there is no other way to a handler."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint

    def made(path: str, methods: dict[str, Endpoint]) -> Route:
        async def answer(request: Request) -> Response:
            endpoint = methods["GET" if request.method == "HEAD" else request.method]
            try:
                with request.app.state.watcher.pages.making() if endpoint.page else nullcontext():
                    return await _answer(endpoint, request, store, access)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:  # noqa: BLE001 - the one place where any error becomes an answer
                problem = problem_of(error)
                return await show(request, problem) if endpoint.page else problem.response()

        # One route for all methods of a path: a 405 then names them all.
        return Route(path, answer, methods=list(methods), name=f"{next(iter(methods))} {path}")

    return [made(path, methods) for path, methods in by_path.items()]


async def _answer(endpoint: Endpoint, request: Request, store: Store, access: Access) -> Response:
    caller = await _admitted(endpoint, request, access)
    asked = Asked(request, store, access, caller)
    if endpoint.changes:
        form = await form_fields(request) if content_type(request) == FORM else None
        check_on_purpose(request, caller, access, None if form is None else form.pop(FORM_TOKEN, None))
        if endpoint.limited:
            access.rate.take(caller.name)
        asked.body = form if form is not None and endpoint.page else await _body(endpoint, request, form)
    if endpoint.query is not None:
        asked.query = converted(query_pairs(request), endpoint.query, "query")
    elif not endpoint.page and (unknown := next(iter(query_pairs(request)), None)) is not None:
        raise Problem(422, "bad-request", f"query: {unknown[:100]!r} is not known here")
    async with asyncio.timeout(endpoint.seconds):
        given = await endpoint.handler(asked)
    if endpoint.changes:
        audit.info("%s %s by %s", endpoint.method, request.url.path, caller.name)
    if isinstance(given, Response):
        return given
    answer = given if isinstance(given, Answer) else Answer(given, endpoint.status)
    return Response(as_json(body(answer.thing)), answer.status, answer.headers, JSON)


_NOBODY = Caller("nobody", frozenset())


async def _admitted(endpoint: Endpoint, request: Request, access: Access) -> Caller:
    """Who asks, if they may: known, with the scope, and not changing anything where only reading is allowed."""
    if endpoint.scope is None:
        return await _whoever(request, access)
    caller = await access.caller_of(request)
    if caller is None:
        raise Problem(401, "unauthorized", "say who you are", hint="Authorization: Bearer <token>", headers=_ASK)
    if endpoint.changes and access.read_only:
        raise Problem(403, "read-only", "this server only shows; nothing was done", hint="pgqrs serve --actions")
    if not caller.may(endpoint.scope):
        raise Problem(403, "forbidden", f"this needs the scope {endpoint.scope.value!r}", needed=endpoint.scope.value)
    return caller


async def _whoever(request: Request, access: Access) -> Caller:
    """Where nobody need say who they are, a wrong word about it does not matter either."""
    try:
        return await access.caller_of(request) or _NOBODY
    except Problem:
        return _NOBODY


_ASK = {"www-authenticate": 'Bearer realm="pgqrs"'}


async def _body(endpoint: Endpoint, request: Request, form: dict[str, Any] | None) -> Any:
    if endpoint.takes is None:
        return None
    if form is not None:
        raise Problem(415, "content-type", f"the body must be {JSON}")
    return await json_body(request, endpoint.takes)
