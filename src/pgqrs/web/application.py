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
from starlette.types import ASGIApp

from pgqrs.web import pages, resources
from pgqrs.web.access import LOOPBACK, Access, Authorize
from pgqrs.web.guard import ROOM_AROUND, Guard
from pgqrs.web.problems import problem_of
from pgqrs.web.routing import Endpoint, routes_of
from pgqrs.web.tokens import Tokens

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
) -> ASGIApp:
    """The HTTP API and the dashboard of a store, to be served or mounted.

    Whoever asks is known by a token (`tokens`, a file that `pgqrs token create` writes), or by `authorize`, which
    gets the request and gives a Caller or None. With neither, only loopback addresses are answered, and `read_only`
    is the default. `hosts` are the names under which it is reached.
    """
    known = Tokens(tokens) if isinstance(tokens, str | Path) else tokens
    access = Access(
        tokens=known,
        authorize=authorize,
        read_only=(known is None and authorize is None) if read_only is None else read_only,
        hosts=frozenset({*LOOPBACK, *(each.lower() for each in hosts)}),
    )

    async def as_json(_request: Request, error: Exception) -> Response:
        return problem_of(error).response()

    table = endpoints(dashboard=dashboard)
    return Starlette(
        routes=[*routes_of(table, store, access, pages.show_problem), *(pages.static() if dashboard else [])],
        middleware=[
            Middleware(Guard, hosts=access.hosts, most_bytes=store.config.max_payload_bytes + ROOM_AROUND),
            Middleware(GZipMiddleware, minimum_size=1000),
        ],
        exception_handlers={Exception: as_json, 404: as_json, 405: as_json},
    )


def endpoints(*, dashboard: bool = True) -> list[Endpoint]:
    """Every route that there is."""
    return [*resources.ENDPOINTS, *(pages.ENDPOINTS if dashboard else [])]
