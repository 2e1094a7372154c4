"""For whoever watches the process: does it live, can it serve, which version is it."""

from __future__ import annotations

from typing import Any

from pgqrs.db import migrations
from pgqrs.errors import PgqrsError
from pgqrs.web.problems import Problem, problem_of
from pgqrs.web.routing import Asked, Endpoint


async def alive(asked: Asked) -> dict[str, str]:
    del asked
    return {"status": "ok"}


async def ready(asked: Asked) -> dict[str, str]:
    """503 unless the database answers and its tables are those of this version."""
    try:
        await migrations.check(asked.store.database)
    except PgqrsError as error:
        problem = problem_of(error)
        raise Problem(503, problem.code, "the database cannot be used", hint=problem.hint) from None
    return {"status": "ok"}


async def version(asked: Asked) -> dict[str, Any]:
    from pgqrs import __version__  # noqa: PLC0415 - the package imports nothing of ours at its head

    return {"version": __version__, "schema_version": await migrations.version(asked.store.database)}


ENDPOINTS = (
    Endpoint("GET", "/healthz", alive, None, "Whether the process lives"),
    Endpoint("GET", "/readyz", ready, None, "Whether the database can be used"),
    Endpoint("GET", "/version", version, None, "The versions of the program and of its tables"),
)
