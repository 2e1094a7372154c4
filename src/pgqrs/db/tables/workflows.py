"""Workflows: named definitions, each with its queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.db.tables import queues
from pgqrs.errors import WorkflowNotFound

_SQL = load(__package__, "workflows")


@dataclass(frozen=True, slots=True)
class Workflow:
    workflow_id: int
    name: str
    queue_id: int
    created_at: datetime
    paused_at: datetime | None


@store_call(Kind.UNIT, idempotent=True)
async def create(db: Database, name: str) -> Workflow:
    """The workflow of that name and its queue, made if they were not there."""
    await queues.create(db, name)
    await db.execute(_SQL["create_workflow"], name=name)
    return Workflow(*(await db.fetch(_SQL["get_workflow"], name=name))[0])


@store_call(Kind.READ, idempotent=True)
async def get(db: Database, name: str) -> Workflow:
    rows = await db.fetch(_SQL["get_workflow"], name=name)
    if not rows:
        known = [row[1] for row in await db.fetch(_SQL["list_workflows"])]
        raise WorkflowNotFound(name, known=known)
    return Workflow(*rows[0])


@store_call(Kind.READ, idempotent=True)
async def list_all(db: Database) -> list[Workflow]:
    return [Workflow(*row) for row in await db.fetch(_SQL["list_workflows"])]


@store_call(Kind.READ, idempotent=True)
async def count_live_workers(db: Database, queue_id: int, *, within: float) -> int:
    rows = await db.fetch(_SQL["count_live_workers"], queue_id=queue_id, within=within)
    return int(rows[0][0])
