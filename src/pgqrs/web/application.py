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

from pgqrs.web import openapi, pages, resources, stream
from pgqrs.web.access import LOOPBACK, Access, Authorize
from pgqrs.web.guard import ROOM_AROUND, Guard
from pgqrs.web.limits import RateLimit
from pgqrs.web.problems import problem_of
from pgqrs.web.routing import Endpoint, routes_of
from pgqrs.web.tokens import Tokens
from pgqrs.web.watching import Watcher

if TYPE_CHECKING:
    from pgqrs.api.store import Store


def app(
    store: Store,
    *,
    tokens: Tokens | str | Path | None = None,
    authorize: Authorize | None = None,
    read_only: bool | None = None,
    hosts: Iterable[str] = (),
    dashboard: bool = True,
    rate: RateLimit | None = None,
) -> Starlette:
    """The HTTP API and the dashboard of a store, to be served or mounted.

    Whoever asks is known by a token (`tokens`, a file that `pgqrs token create` writes), or by `authorize`, which
    gets the request and gives a Caller or None. With neither, only loopback addresses are answered, and `read_only`
    is the default. `hosts` are the names under which it is reached. `rate` bounds what a caller may add to the work.
    """
    known = Tokens(tokens) if isinstance(tokens, str | Path) else tokens
    access = Access(
        tokens=known,
        authorize=authorize,
        read_only=(known is None and authorize is None) if read_only is None else read_only,
        hosts=frozenset({*LOOPBACK, *(each.lower() for each in hosts)}),
        rate=rate or RateLimit(),
    )

    async def answer(request: Request, error: Exception) -> Response:
        """What no route has answered: whoever came with a browser gets a page."""
        problem = problem_of(error)
        if dashboard and "text/html" in request.headers.get("accept", ""):
            return await pages.show_problem(request, problem)
        return problem.response()

    table = endpoints(dashboard=dashboard)
    made = Starlette(
        routes=[*routes_of(table, store, access, pages.show_problem), *(pages.static() if dashboard else [])],
        middleware=[
            Middleware(Guard, hosts=access.hosts, most_bytes=store.config.max_payload_bytes + ROOM_AROUND),
            Middleware(GZipMiddleware, minimum_size=1000),
        ],
        exception_handlers={Exception: answer, 404: answer, 405: answer},
    )
    # A path with a slash too many is another path: a redirect would be built from what the client says of itself.
    made.router.redirect_slashes = False
    made.state.watcher = Watcher(store)
    return made


def endpoints(*, dashboard: bool = True) -> list[Endpoint]:
    """Every route that there is."""
    return [
        *resources.ENDPOINTS,
        *stream.ENDPOINTS,
        *openapi.endpoints(),
        *(pages.ENDPOINTS if dashboard else []),
    ]
