"""What tests and exports look at: live messages, signals, the outbox. Nothing that runs in production needs it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import Query, load
from pgqrs.text.names import checked_schema

_SQL = load(__package__, "inspection")
# A test that has more than this in one queue looks at the first of it.
_MOST = 10_000


class LiveMessage(NamedTuple):
    message_id: int
    payload: str
    priority: int
    visible_after: datetime


class SentSignal(NamedTuple):
    name: str
    payload: str | None
    created_at: datetime
    consumed_at: datetime | None
    actor: str | None


class Emitted(NamedTuple):
    run_id: int
    event_type: str
    payload: str


class LiveRun(NamedTuple):
    """A run that a worker may lease from `visible_after` on; two of them differ when it has got further."""

    run_id: int
    queue_id: int
    visible_after: datetime
    status: str
    waiting_for: str | None
    attempt: int
    steps: int
    attempts_of_steps: int


@store_call(Kind.READ, idempotent=True)
async def live_runs(db: Database) -> list[LiveRun]:
    return [LiveRun(*row) for row in await db.fetch(_SQL["live_runs"])]


@store_call(Kind.READ, idempotent=True)
async def live_messages(db: Database, queue_id: int) -> list[LiveMessage]:
    return [LiveMessage(*row) for row in await db.fetch(_SQL["live_messages"], queue_id=queue_id, most=_MOST)]


@store_call(Kind.READ, idempotent=True)
async def signals(db: Database, run_id: int, ids: Sequence[int]) -> list[SentSignal]:
    """Those of the given ids, oldest first."""
    return [SentSignal(*row) for row in await db.fetch(_SQL["signals_of_run"], run_id=run_id, ids=ids)]


@store_call(Kind.READ, idempotent=True)
async def signal_sizes(db: Database, run_id: int, *, limit: int, after: int) -> list[tuple[int, int]]:
    """The ids of what a run was sent, and how many characters each has."""
    rows = await db.fetch(_SQL["signal_sizes"], run_id=run_id, most=limit, after=after)
    return [(row[0], int(row[1])) for row in rows]


@store_call(Kind.READ, idempotent=True)
async def emitted(db: Database) -> list[Emitted]:
    return [Emitted(*row) for row in await db.fetch(_SQL["emitted_events"], most=_MOST)]


@store_call(Kind.READ, idempotent=True)
async def runs_by_workflow(db: Database) -> dict[str, int]:
    return {str(name): int(count) for name, count in await db.fetch(_SQL["runs_by_workflow"])}


@store_call(Kind.UNIT)
async def drop_schema(db: Database, schema: str) -> None:
    """PostgreSQL only. A schema cannot be a parameter; its name is one that we allow."""
    text = _SQL["drop_schema"].text.replace("a_schema", f'"{checked_schema(schema)}"')
    await db.execute(Query("drop_schema", text))
