"""Facts for the doctor: the server's settings, what holds up cleaning, schedules in trouble."""

from __future__ import annotations

from typing import NamedTuple

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load

_SQL = load(__package__, "diagnostics")


class ServerSettings(NamedTuple):
    """A PostgreSQL server, as it says of itself."""

    version: str
    version_number: int
    fsync: bool
    waits_for_disk: bool
    full_page_writes: bool
    autovacuum: bool
    most_connections: int
    connections: int
    is_standby: bool
    # Seconds since 1970, by its clock.
    clock: float


class ConnectionSecurity(NamedTuple):
    encrypted: bool
    address: str


class DeadRows(NamedTuple):
    table: str
    live: int
    dead: int
    options: str


class OpenTransaction(NamedTuple):
    """`who` is a process of the server, or the name of a prepared transaction."""

    who: str
    seconds: float
    # The statement that ends it.
    ended_by: str


class TroubledSchedule(NamedTuple):
    name: str
    last_error: str | None
    late_seconds: float | None


@store_call(Kind.READ, idempotent=True)
async def server(db: Database) -> ServerSettings:
    """PostgreSQL only."""
    return ServerSettings(*(await db.fetch(_SQL["server"]))[0])


@store_call(Kind.READ, idempotent=True)
async def library_version(db: Database) -> str:
    """SQLite and Turso only."""
    return str((await db.fetch(_SQL["server"]))[0][0])


@store_call(Kind.READ, idempotent=True)
async def line(db: Database) -> ConnectionSecurity:
    """PostgreSQL only."""
    return ConnectionSecurity(*(await db.fetch(_SQL["line"]))[0])


@store_call(Kind.READ, idempotent=True)
async def dead_rows(db: Database) -> list[DeadRows]:
    """PostgreSQL only."""
    return [DeadRows(*row) for row in await db.fetch(_SQL["dead_rows"], schema=db.dialect.schema)]


@store_call(Kind.READ, idempotent=True)
async def oldest_transactions(db: Database) -> list[OpenTransaction]:
    """PostgreSQL only: the oldest of those that somebody has open, and of those that are prepared."""
    found = []
    for pid, name, state, seconds in await db.fetch(_SQL["oldest_transaction"]):
        who = f"process {pid} ({name or 'without a name'}, {state})"
        found.append(OpenTransaction(who, seconds, f"select pg_terminate_backend({pid})"))
    for gid, seconds in await db.fetch(_SQL["oldest_prepared"]):
        quoted = "'" + gid.replace("'", "''") + "'"
        found.append(OpenTransaction(f"prepared transaction {quoted}", seconds, f"rollback prepared {quoted}"))
    return found


@store_call(Kind.READ, idempotent=True)
async def schedules_in_trouble(db: Database) -> list[TroubledSchedule]:
    return [TroubledSchedule(*row) for row in await db.fetch(_SQL["schedules_in_trouble"])]


@store_call(Kind.READ, idempotent=True)
async def old_tables(db: Database) -> list[str]:
    """Tables of the former layout that nobody has removed."""
    asked = {"schema": db.dialect.schema} if db.dialect.is_postgres else {}
    return [str(row[0]) for row in await db.fetch(_SQL["tables_named"], **asked)]
