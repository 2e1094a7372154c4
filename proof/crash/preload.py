"""Work that the forking process does once, so that none of its children does it again.

Measured: a child that first imports `pgqrs.api.operations.admin` needs 40 ms more, one that imports psycopg 100 ms.
A connection that meets its first array asks the server what an array is, which takes the server as long as ten of our
statements.
"""

from __future__ import annotations

import importlib
from typing import Any

# What only faults and their checks need: a dry run imports the rest.
_MODULES = {
    "sqlite": ("pgqrs.api.operations.admin",),
    "turso": ("pgqrs.api.operations.admin", "turso"),
    "postgres": ("pgqrs.api.operations.admin", "asyncpg", "psycopg"),
}
# Below this number, types are PostgreSQL's own: the same in every database of every server.
_FIRST_OF_USERS = 16_384


def preload(backend: str) -> None:
    """Import what children of this process need, and let them remember the server's own types."""
    for name in _MODULES[backend]:
        importlib.import_module(name)
    if backend == "postgres":
        _remember_types()


_types: dict[tuple[int, ...], Any] = {}


def _remember_types() -> None:
    """asyncpg asks for types on each connection; its answer for PostgreSQL's own types never changes."""
    import asyncpg

    ask = asyncpg.Connection._introspect_types
    if ask.__module__ == __name__:
        return

    async def remembered(connection: Any, oids: Any, timeout: float | None) -> Any:
        key = tuple(sorted(oids))
        if key in _types:
            return _types[key]
        found = await ask(connection, oids, timeout)
        if all(oid < _FIRST_OF_USERS for oid in key):
            _types[key] = found[0], _Named()
        return found

    asyncpg.Connection._introspect_types = remembered


class _Named:
    """Stands for the statement that asked: as no statement was prepared, none took the place of the caller's."""

    name = "remembered"
