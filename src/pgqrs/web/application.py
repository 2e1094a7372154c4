"""The application: guard, HTTP API and dashboard around one store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from pgqrs.errors import ConfigError
from pgqrs.text.shell import command
from pgqrs.web import api, openapi, pages
from pgqrs.web.auth.access import LOOPBACK, Access, Authorize
from pgqrs.web.auth.start_token import StartToken
from pgqrs.web.auth.tokens import Tokens
from pgqrs.web.live import sse
from pgqrs.web.live.change_feed import ChangeFeed
from pgqrs.web.middleware import HOST, ROOM_AROUND, Guard
from pgqrs.web.problems import Problem, log, problem_of
from pgqrs.web.routing import Endpoint, routes_of
from pgqrs.web.server.exchange import Exchange
from pgqrs.web.server.rate_limit import MOST_AT_ONCE, MOST_DOCUMENTS, RateLimit, Share
from pgqrs.web.server.unsent import Unsent

if TYPE_CHECKING:
    from pgqrs.api.store import Store


def app(
    store: Store,
    *,
    tokens: Tokens | StartToken | str | Path | None = None,
    authorize: Authorize | None = None,
    read_only: bool | None = None,
    hosts: Iterable[str] = (),
    dashboard: bool = True,
    rate: RateLimit | None = None,
) -> Starlette:
    """The HTTP API and the dashboard of a store, to be served or mounted.

    Callers are known by a token (`tokens`, a file that `pgqrs token create` writes), or by `authorize`, an async or
    plain function which gets the request and returns a Caller, or None for a user whom your application does not
    know. With neither it raises ConfigError. `hosts` are the names under which it is reached, without a port. `rate`
    bounds what a caller may add to the work.
    """
    known = _tokens_of(Path(tokens)) if isinstance(tokens, str | Path) else tokens
    is_local = isinstance(known, StartToken)
    access = Access(
        tokens=known,
        authorize=authorize,
        read_only=is_local if read_only is None else read_only,
        hosts=frozenset({*LOOPBACK, *_checked(hosts)}),
        local=is_local,
        rate=rate or RateLimit(),
    )

    async def answer(request: Request, error: Exception) -> Response:
        """What no route has answered: whoever came with a browser gets a page."""
        problem = problem_of(error)
        if dashboard and "text/html" in request.headers.get("accept", ""):
            return await show(request, problem)
        return problem.response()

    async def show(request: Request, problem: Problem) -> Response:
        return await pages.show_problem(request, problem, has_login=access.has_login)

    table = endpoints(dashboard=dashboard)
    made = Starlette(
        routes=[*routes_of(table, store, access, show), *(pages.static() if dashboard else [])],
        middleware=_middleware(access, most_bytes=store.config.max_payload_bytes + ROOM_AROUND),
        exception_handlers={Exception: answer, 404: answer, 405: answer},
    )
    # A path with a slash too many is another path: a redirect would be built from what the client says of itself.
    made.router.redirect_slashes = False
    made.state.watcher = ChangeFeed(store)
    made.state.share = Share(MOST_AT_ONCE)
    made.state.unsent = Unsent()
    made.state.document_share = Share(MOST_DOCUMENTS)
    made.state.stream_share = Share(sse.MOST_STREAMS_PER_CALLER)
    return made


def _middleware(access: Access, *, most_bytes: int) -> list[Middleware]:
    """Around every route, the outermost first."""
    return [
        Middleware(Exchange),
        Middleware(
            Guard,
            hosts=access.hosts,
            most_bytes=most_bytes,
            local=access.local,
            name_it=access.how_to_name_a_host,
        ),
        Middleware(GZipMiddleware, minimum_size=1000),
    ]


def _tokens_of(path: Path) -> Tokens:
    """The tokens of a file, which may be made later; its folder may not: that would be a slip in its name."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"there is no folder {str(path.parent)!r}, so no token in {str(path)!r}", hint="make it, or fix the name"
        )
    known = Tokens(path)
    if not path.exists():
        made_by = command("token create", "NAME", scope="read", file=path)
        log.warning("%s does not exist, so all callers are refused; make a token: %s", path, made_by)
    return known


def _checked(hosts: Iterable[str]) -> list[str]:
    """The names in lower case; ConfigError for what no request could be addressed to."""
    if isinstance(hosts, str):
        raise ConfigError(f"hosts must be a list of names: write hosts=[{hosts!r}]")
    found = list(hosts)
    for each in found:
        match = HOST.fullmatch(each) if isinstance(each, str) else None
        if match is None or match.group(1) != each:
            instead = f"; write {match.group(1)!r}" if match else ""
            raise ConfigError(f"host {each!r} must be a name, without a scheme, a port or a path{instead}")
    return [each.lower() for each in found]


def endpoints(*, dashboard: bool = True) -> list[Endpoint]:
    """Every route that there is."""
    return [
        *api.ENDPOINTS,
        *sse.ENDPOINTS,
        *openapi.endpoints(),
        *(pages.ENDPOINTS if dashboard else []),
    ]
