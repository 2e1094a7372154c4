"""For probes and load balancers: does it live, can it serve; and for callers who are known, which version is it.

Probes have no token, so `/healthz` and `/readyz` are open, and say yes or no. Why it is not ready is in the log. The
version would tell a stranger which known flaws to try: it needs the scope `read`.
"""

from __future__ import annotations

from typing import Any

from pgqrs.db import migrations
from pgqrs.errors import PgqrsError
from pgqrs.web.auth.access import Scope
from pgqrs.web.problems import Problem, logged
from pgqrs.web.routing import Endpoint, RequestContext


async def alive(asked: RequestContext) -> dict[str, str]:
    del asked
    return {"status": "ok"}


async def ready(asked: RequestContext) -> dict[str, str]:
    """503 unless the database answers and its tables are those of this version."""
    try:
        await migrations.check(asked.store.database)
    except PgqrsError as error:
        error_id = logged("not ready", error)
        hint = "the server's log has the reason under error_id"
        raise Problem(503, "not-ready", "the database cannot be used", hint=hint, error_id=error_id) from None
    return {"status": "ok"}


async def version(asked: RequestContext) -> dict[str, Any]:
    from pgqrs import __version__  # noqa: PLC0415 - the package imports nothing of ours at its head

    return {"version": __version__, "schema_version": await migrations.version(asked.store.database)}


ENDPOINTS = (
    Endpoint("GET", "/healthz", alive, None, "Whether the process lives"),
    Endpoint("GET", "/readyz", ready, None, "Whether the database can be used"),
    Endpoint("GET", "/version", version, Scope.READ, "The versions of the program and of its tables"),
)
