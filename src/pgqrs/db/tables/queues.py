"""Queues: named places for messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.errors import InvalidTransition, QueueNotFound
from pgqrs.reports import QueueMetrics

_SQL = load(__package__, "queues")


_ARE_RUNS = "its messages are its runs; cancel or delete those"


@dataclass(frozen=True, slots=True)
class Queue:
    queue_id: int
    name: str
    created_at: datetime
    paused_at: datetime | None


@store_call(Kind.UNIT, idempotent=True)
async def create(db: Database, name: str) -> Queue:
    """The queue of that name, made if it was not there."""
    await db.execute(_SQL["create_queue"], name=name)
    return await _get(db, name)


@store_call(Kind.READ, idempotent=True)
async def get(db: Database, name: str) -> Queue:
    return await _get(db, name)


@store_call(Kind.READ, idempotent=True)
async def get_own(
    db: Database, name: str, *, why: str = "its messages are its runs; cancel or delete those"
) -> Queue:
    """As `get`; refuses a workflow's: whoever takes messages out of that one takes the future from runs."""
    queue = await _get(db, name)
    await _refuse_workflows(db, queue.queue_id, name, why)
    return queue


async def get_for_messages(db: Database, name: str) -> Queue:
    """As `get_own`, for those who enqueue: no worker of a workflow would ever handle a message without a run."""
    return await get_own(db, name, why=f"start a run of it instead: pgqrs.workflow({name!r}).trigger(...)")


@store_call(Kind.READ, idempotent=True)
async def list_all(db: Database) -> list[Queue]:
    return [Queue(*row) for row in await db.fetch(_SQL["list_queues"])]


@store_call(Kind.READ, idempotent=True)
async def page(db: Database, *, limit: int, after: str = "") -> list[Queue]:
    """By name, from the one behind `after` on."""
    return [Queue(*row) for row in await db.fetch(_SQL["queues_page"], after=after, most=limit)]


@store_call(Kind.UNIT, idempotent=True)
async def pause(db: Database, name: str) -> None:
    """From now on nothing is leased from it; what is leased goes on."""
    if not await db.execute(_SQL["pause_queue"], name=name):
        raise await _not_found(db, name)


@store_call(Kind.UNIT, idempotent=True)
async def resume(db: Database, name: str) -> None:
    if not await db.execute(_SQL["resume_queue"], name=name):
        raise await _not_found(db, name)


@store_call(Kind.UNIT)
async def delete(db: Database, name: str, *, force: bool) -> int:
    """Removes the queue, its archive and its workers; returns how many live messages went with it."""
    rows = await db.fetch(_SQL["lock_queue"], name=name)
    if not rows:
        raise await _not_found(db, name)
    queue_id = rows[0][0]
    await _refuse_workflows(db, queue_id, name, "it goes only with that")
    held = int((await db.fetch(_SQL["count_messages_of_queue"], queue_id=queue_id))[0][0])
    if held and not force:
        raise InvalidTransition(
            f"queue {name!r} still holds {held:,} live messages", hint="purge it first, or delete it with force=True"
        )
    for table in ("messages", "archived_messages", "workers"):
        await db.execute(_SQL[f"delete_{table}_of_queue"], queue_id=queue_id)
    await db.execute(_SQL["delete_queue"], queue_id=queue_id)
    return held


@store_call(Kind.READ, idempotent=True)
async def metrics(db: Database, name: str) -> QueueMetrics:
    queue = await _get(db, name)
    counts = (await db.fetch(_SQL["queue_counts"], queue_id=queue.queue_id))[0]
    ready, scheduled, leased, dead, oldest = counts
    archived = (await db.fetch(_SQL["count_archived"], queue_id=queue.queue_id))[0][0]
    return QueueMetrics(
        queue=name,
        paused=queue.paused_at is not None,
        ready=ready,
        scheduled=scheduled,
        leased=leased,
        dead=dead,
        archived=archived,
        oldest_ready_age_seconds=oldest,
    )


async def _get(db: Database, name: str) -> Queue:
    rows = await db.fetch(_SQL["get_queue"], name=name)
    if not rows:
        raise await _not_found(db, name)
    return Queue(*rows[0])


async def _refuse_workflows(db: Database, queue_id: int, name: str, why: str) -> None:
    workflows = await db.fetch(_SQL["workflow_of_queue"], queue_id=queue_id)
    if workflows:
        raise InvalidTransition(f"queue {name!r} belongs to workflow {workflows[0][0]!r}", hint=f"{why}")


async def _not_found(db: Database, name: str) -> QueueNotFound:
    return QueueNotFound(name, known=[row[1] for row in await db.fetch(_SQL["list_queues"])])
