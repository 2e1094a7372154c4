"""The table of routes, each with its scope and shapes: guarding, read-only mode and OpenAPI read one list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from pgqrs.api.operations.json_view import to_json
from pgqrs.web.auth.access import SAFE, Access, Caller, Scope
from pgqrs.web.auth.audit_log import outcome_of, outcome_of_error, tell_change
from pgqrs.web.auth.cross_site import FORM_TOKEN, check_on_purpose, check_reading, keep_form_key
from pgqrs.web.auth.login import opened
from pgqrs.web.problems import Problem, as_json, problem_of
from pgqrs.web.request_body import (
    FORM,
    JSON,
    MOST_OPEN_BYTES,
    content_type,
    converted,
    form_fields,
    json_body,
    query_pairs,
)
from pgqrs.web.server.exchange import ALLOWED
from pgqrs.web.server.rate_limit import Share

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# A request that asks for more than this is answered with 503; a list that is slower is a list nobody waits for.
MOST_SECONDS = 10.0
# A document that is streamed may be large, and its reader far away.
DOWNLOAD_SECONDS = 300.0


@dataclass(slots=True)
class RequestContext:
    """A request, once it is known who asks and what: what handlers get."""

    request: Request
    store: Store
    access: Access
    caller: Caller
    query: Any = None
    body: Any = None
    # How many things a verb for many has dealt with so far, for the audit log.
    handled: int = 0

    def progress(self, more: int) -> None:
        self.handled += more

    @property
    def actor(self) -> str:
        """Who did it, for the history."""
        return self.caller.name

    def path(self, name: str) -> Any:
        found = self.request.path_params[name]
        if isinstance(found, str) and "\0" in found:
            # PostgreSQL would refuse the question.
            raise Problem(422, "bad-request", f"path: {name!r} holds a NUL character")
        return found

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
class Reply:
    """What a handler gives when 200 and JSON are not enough."""

    thing: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Streamed(StreamingResponse):
    """An answer in pieces that has a share of its own, of each caller, for as long as it is sent."""

    def __init__(self, pieces: AsyncIterator[bytes], share: Share, caller: str, headers: dict[str, str]) -> None:
        super().__init__(pieces, headers=headers)
        self._share = share
        self._caller = caller

    def check(self) -> None:
        """Raise a Problem when there is no room; between this and `counted` nothing else happens."""
        self._share.check(self._caller)

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._share.taken(self._caller):
            yield

    async def ready(self) -> None:
        """Wait for what the first piece needs."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        with self.counted():
            await self.ready()
            await super().__call__(scope, receive, send)


class Document(Streamed):
    """An answer that is read from the database while the client reads it."""

    def __init__(self, asked: RequestContext, pieces: AsyncIterator[bytes], media: str, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(
            pieces, asked.request.app.state.document_share, asked.actor, {"content-type": media, **named}
        )


Handler = Callable[[RequestContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Items:
    """What a list gives, for the table: `items` of a kind, and `next_cursor` where there are pages."""

    of: Any
    paged: bool = False


def items(found: Iterable[Any], *, cut: int | None = None, **more: Any) -> dict[str, Any]:
    """A list as every list is answered; texts with more characters than `cut` are truncated, which the item says."""
    return {"items": [to_json(each, raw=True, cut=cut) for each in found], **more}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of the table. What it takes and gives are types; a handler gets the first two checked."""

    method: str
    path: str
    handler: Handler
    # None: open to everyone who passes the Host check (is it alive, is it ready, log in, log out).
    scope: Scope | None
    summary: str
    query: type[msgspec.Struct] | None = None
    takes: type[msgspec.Struct] | None = None
    gives: Any = None
    status: int = 200
    # What a 202 gives: it is under way.
    meanwhile: Any = None
    seconds: float = MOST_SECONDS
    # How long a client may take to read the answer, where that is longer than usual.
    answer_seconds: float | None = None
    # A page or a form of the dashboard: answers with HTML, and its problems too.
    page: bool = False
    # What it answers with when that is not JSON.
    media: str = JSON
    # Request headers that it reads, and what for.
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def changes(self) -> bool:
        return self.method not in SAFE

    @property
    def limited(self) -> bool:
        """Adds work, as its scope says: as often as the caller's rate allows, by a page as by the API."""
        return self.scope in (Scope.TRIGGER, Scope.SIGNAL)


# How a problem is shown: as JSON here, as a page by the dashboard.
Show = Callable[[Request, Problem], Awaitable[Response]]


def routes_of(endpoints: Iterable[Endpoint], store: Store, access: Access, show: Show) -> list[Route]:
    """The table as routes; every request passes `_answer`, there is no other way to a handler."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint

    return [
        # One route for all methods of a path: a 405 then names them all.
        Route(path, _Path(methods, store, access, show), methods=list(methods), name=f"{next(iter(methods))} {path}")
        for path, methods in by_path.items()
    ]


class _Path:
    """Answers the requests to a path; what an answer holds, its caller's share included, is held until it is sent."""

    def __init__(self, methods: dict[str, Endpoint], store: Store, access: Access, show: Show) -> None:
        self._methods = methods
        self._store = store
        self._access = access
        self._show = show

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        with ExitStack() as held:
            response = await self._response(request, held)
            await response(scope, receive, send)

    async def _response(self, request: Request, held: ExitStack) -> Response:
        endpoint = self._methods["GET" if request.method == "HEAD" else request.method]
        try:
            with request.app.state.watcher.pages.making() if endpoint.page else nullcontext():
                return await _answer(endpoint, request, self._store, self._access, held)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001 - the one place where any error becomes an answer
            # Without the frames that it came through: they know the problem, and so would keep the answer that was
            # refused in memory until the next garbage collection.
            problem = problem_of(error).with_traceback(None)
            return await self._show(request, problem) if endpoint.page else problem.response()


async def _answer(endpoint: Endpoint, request: Request, store: Store, access: Access, held: ExitStack) -> Response:
    if not endpoint.changes:
        if endpoint.page and (response := await opened(request, access)) is not None:
            return response
        # Before anyone is asked who they are: that a caller is known is told to no other site, either.
        check_reading(request, is_page=endpoint.page)
    caller = await _admitted(endpoint, request, access)
    share: Share = request.app.state.share
    share.check(sharer := _sharer(caller, request))
    held.enter_context(share.taken(sharer))
    response = await _answer_to(caller, endpoint, request, store, access)
    if isinstance(response, Streamed):
        # From here on its own share counts. Without a pause in between: what is checked here is taken next.
        held.close()
        response.check()
    else:
        held.enter_context(request.app.state.unsent.held(sharer, len(response.body)))
    return response


def _sharer(caller: Caller, request: Request) -> str:
    """Callers that are not known share with their address only."""
    if caller is not _NOBODY:
        return caller.name
    return f"nobody at {request.client.host if request.client is not None else '?'}"


async def _answer_to(caller: Caller, endpoint: Endpoint, request: Request, store: Store, access: Access) -> Response:
    asked = RequestContext(request, store, access, caller)
    if endpoint.answer_seconds is not None:
        request.scope[ALLOWED] = endpoint.answer_seconds
    if endpoint.changes:
        most = MOST_OPEN_BYTES if endpoint.scope is None else None
        form = await form_fields(request, most=most) if content_type(request) == FORM else None
        check_on_purpose(request, caller, None if form is None else form.pop(FORM_TOKEN, None))
        if endpoint.limited:
            access.rate.take(caller.name)
        asked.body = form if form is not None and endpoint.page else await _body(endpoint, request, form)
    if endpoint.query is not None:
        asked.query = converted(query_pairs(request), endpoint.query, "query")
    elif not endpoint.page and (unknown := next(iter(query_pairs(request)), None)) is not None:
        raise Problem(422, "bad-request", f"query: {unknown[:100]!r} is not known here")
    return await (_audited if endpoint.changes and endpoint.scope is not None else _handled)(endpoint, asked)


async def _audited(endpoint: Endpoint, asked: RequestContext) -> Response:
    """What the handler gives. However it ends, the audit log tells who asked for the change."""
    if endpoint.seconds > MOST_SECONDS:
        # Much can be changed before the end, which a process that is killed does not tell.
        tell_change(asked.request, asked.caller, "begun")
    try:
        answered = await _handled(endpoint, asked)
    except BaseException as error:
        tell_change(asked.request, asked.caller, outcome_of_error(error, handled=asked.handled))
        raise
    tell_change(asked.request, asked.caller, outcome_of(answered.status_code, handled=asked.handled))
    return answered


def _response(given: Any, endpoint: Endpoint, request: Request) -> Response:
    if isinstance(given, Response):
        keep_form_key(request, given)
        return given
    answer = given if isinstance(given, Reply) else Reply(given, endpoint.status)
    return Response(as_json(to_json(answer.thing, raw=True)), answer.status, answer.headers, JSON)


async def _handled(endpoint: Endpoint, asked: RequestContext) -> Response:
    """What the handler gives. A caller who may not read learns nothing from what goes wrong, either."""
    try:
        async with asyncio.timeout(endpoint.seconds):
            answered = _response(await endpoint.handler(asked), endpoint, asked.request)
            # A limit that passed while the answer was written is noticed here.
            await asyncio.sleep(0)
            return answered
    except Exception as error:
        if endpoint.scope is None or asked.caller.may(Scope.READ):
            raise
        raise problem_of(error).without_details() from None


_NOBODY = Caller("nobody", frozenset())


async def _admitted(endpoint: Endpoint, request: Request, access: Access) -> Caller:
    """Who asks, if they may: known, with the scope, and not changing anything where only reading is allowed."""
    if endpoint.scope is None:
        return await _whoever(request, access)
    caller = await access.caller_of(request)
    if caller is None:
        raise access.unknown()
    if endpoint.changes and access.read_only:
        raise Problem(403, "read-only", "this server only shows; nothing was done", hint="pgqrs serve --actions")
    if not caller.may(endpoint.scope):
        raise access.forbidden(caller, endpoint.scope)
    return caller


async def _whoever(request: Request, access: Access) -> Caller:
    """Where nobody need say who they are, a wrong word about it does not matter either."""
    try:
        return await access.caller_of(request) or _NOBODY
    except (Problem, HTTPException):
        return _NOBODY


async def _body(endpoint: Endpoint, request: Request, form: dict[str, Any] | None) -> Any:
    if endpoint.takes is None:
        return None
    if form is not None:
        raise Problem(415, "content-type", f"the body must be {JSON}")
    return await json_body(request, endpoint.takes)
