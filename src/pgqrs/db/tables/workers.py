"""Workers: who is there, since when, and when it last gave a sign of life."""

from __future__ import annotations

from typing import Any, NamedTuple

from pgqrs.db.database import WHOLE, Database, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.serialization import encode, object_in
from pgqrs.types import WorkerInfo, WorkerStatus

_SQL = load(__package__, "workers")

# Before every id, also of a row that was written past us.
FIRST = -(2**63)


def told(info: str | None) -> dict[str, Any]:
    """Return what a worker says of itself. Whatever the row holds, `handlers` and `prefixes` are names."""
    found = object_in(info)
    for key in ("handlers", "prefixes"):
        if key in found:
            names = found[key]
            found[key] = [name for name in names if isinstance(name, str)] if isinstance(names, list | tuple) else []
    return found


@store_call(Kind.STATEMENT)
async def register(db: Database, *, queue_id: int | None, name: str, port: int, info: dict[str, Any]) -> int:
    """The new worker's id."""
    rows = await db.fetch(_SQL["register_worker"], queue_id=queue_id, name=name, port=port, info=encode(info))
    return int(rows[0][0])


@store_call(Kind.STATEMENT, idempotent=True)
async def heartbeat(db: Database, worker_id: int) -> bool:
    """False when the worker has been stopped, or its row is gone."""
    return bool(await db.execute(_SQL["heartbeat"], worker_id=worker_id))


@store_call(Kind.STATEMENT, idempotent=True)
async def stop(db: Database, worker_id: int) -> None:
    await db.execute(_SQL["stop_worker"], worker_id=worker_id)


@store_call(Kind.READ, idempotent=True)
async def status(db: Database, worker_id: int) -> WorkerStatus | None:
    """None when there is no such worker, or no longer."""
    rows = await db.fetch(_SQL["worker_status"], worker_id=worker_id)
    return WorkerStatus(rows[0][0]) if rows else None


class ListedWorker(NamedTuple):
    """A worker of a page, and whether what it says of itself was too long for it."""

    worker: WorkerInfo
    is_cut: bool


@store_call(Kind.READ, idempotent=True)
async def list_all(db: Database, *, queue_id: int | None = None, worker_id: int | None = None) -> list[WorkerInfo]:
    """All of them, or those of one queue, or the one of that id."""
    return [each.worker for each in await _list(db, queue_id=queue_id, worker_id=worker_id)]


@store_call(Kind.READ, idempotent=True)
async def page(db: Database, *, limit: int, after: int, cut: int, queue_id: int | None = None) -> list[ListedWorker]:
    """By their ids, from the one behind `after` on; texts with more characters than `cut` are left out or cut."""
    return await _list(db, queue_id=queue_id, limit=limit, after=after, cut=cut)


async def _list(
    db: Database,
    *,
    queue_id: int | None,
    worker_id: int | None = None,
    limit: int = 2**31 - 1,
    after: int = FIRST,
    cut: int = WHOLE,
) -> list[ListedWorker]:
    rows = await db.fetch(
        _SQL["list_workers"], queue_id=queue_id, worker_id=worker_id, most=limit, after=after, cut=cut
    )
    return [ListedWorker(_worker(row), is_cut=characters > cut) for *row, characters in rows]


def _worker(row: Row) -> WorkerInfo:
    worker_id, queue, name, port, status, created_at, heartbeat_at, stopped_at, age, leased, info = row
    return WorkerInfo(
        worker_id=worker_id,
        queue=queue,
        name=name,
        port=port,
        status=WorkerStatus(status),
        created_at=created_at,
        heartbeat_at=heartbeat_at,
        stopped_at=stopped_at,
        heartbeat_age_seconds=age,
        leased=leased,
        info=told(info),
    )
