"""Workers: who is there, since when, and when it last gave a sign of life."""

from __future__ import annotations

from typing import Any

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.serialization import decode, encode
from pgqrs.types import WorkerInfo, WorkerStatus

_SQL = load(__package__, "workers")


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


@store_call(Kind.READ, idempotent=True)
async def list_all(db: Database, *, queue_id: int | None = None, worker_id: int | None = None) -> list[WorkerInfo]:
    """All of them, or those of one queue, or the one of that id."""
    rows = await db.fetch(_SQL["list_workers"], queue_id=queue_id, worker_id=worker_id)
    return [
        WorkerInfo(
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
            info=decode(info),
        )
        for worker_id, queue, name, port, status, created_at, heartbeat_at, stopped_at, age, leased, info in rows
    ]
