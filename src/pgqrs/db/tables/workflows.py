"""Workflows: named definitions, each with its queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.db.tables import queues, workers
from pgqrs.errors import WorkflowNotFound

_SQL = load(__package__, "workflows")


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    workflow_id: int
    name: str
    queue_id: int
    created_at: datetime
    paused_at: datetime | None
    # What it takes, as a worker's code says; lists leave it out.
    input_schema: str | None = None


@store_call(Kind.UNIT, idempotent=True)
async def create(db: Database, name: str) -> WorkflowRow:
    """The workflow of that name and its queue, made if they were not there."""
    await queues.create(db, name)
    await db.execute(_SQL["create_workflow"], name=name)
    return WorkflowRow(*(await db.fetch(_SQL["get_workflow"], name=name))[0])


@store_call(Kind.READ, idempotent=True)
async def get(db: Database, name: str) -> WorkflowRow:
    rows = await db.fetch(_SQL["get_workflow"], name=name)
    if not rows:
        known = [row[1] for row in await db.fetch(_SQL["list_workflows"])]
        raise WorkflowNotFound(name, known=known)
    return WorkflowRow(*rows[0])


@store_call(Kind.READ, idempotent=True)
async def list_all(db: Database) -> list[WorkflowRow]:
    return [WorkflowRow(*row) for row in await db.fetch(_SQL["list_workflows"])]


@store_call(Kind.READ, idempotent=True)
async def page(db: Database, *, limit: int, after: str = "") -> list[WorkflowRow]:
    """By name, from the one behind `after` on."""
    return [WorkflowRow(*row) for row in await db.fetch(_SQL["workflows_page"], after=after, most=limit)]


@store_call(Kind.READ, idempotent=True)
async def names_of_queues(db: Database, queue_ids: Sequence[int]) -> set[str]:
    """The workflows to which some of these queues belong."""
    return {row[0] for row in await db.fetch(_SQL["workflows_of_queues"], queue_ids=queue_ids)}


@store_call(Kind.READ, idempotent=True)
async def with_prefixes(db: Database, prefixes: Sequence[str]) -> list[WorkflowRow]:
    """Those whose names begin with one of the prefixes."""
    rows = await db.fetch(_SQL["workflows_with_prefixes"], given=[(prefix,) for prefix in prefixes])
    return [WorkflowRow(*row) for row in rows]


@store_call(Kind.UNIT, idempotent=True)
async def set_dead_letter(db: Database, name: str, dead_letter: str | None) -> None:
    """Which workflow gets a run when one of `name` fails; both must exist."""
    if dead_letter is not None:
        await get(db, dead_letter)
    await db.execute(_SQL["set_dead_letter"], name=name, dead_letter=dead_letter)


@store_call(Kind.STATEMENT, idempotent=True)
async def set_input_schema(db: Database, name: str, schema: str) -> None:
    """What its runs take, as the code of a worker says."""
    await db.execute(_SQL["set_input_schema"], name=name, schema=schema)


@store_call(Kind.READ, idempotent=True)
async def input_schema(db: Database, name: str) -> str | None:
    rows = await db.fetch(_SQL["get_input_schema"], name=name)
    return rows[0][0] if rows else None


@store_call(Kind.READ, idempotent=True)
async def count_live_workers(db: Database, workflow: WorkflowRow, *, within: float) -> int:
    """Workers of this workflow that gave a sign of life in the last `within` seconds."""
    rows = await db.fetch(_SQL["live_workers"], queue_id=workflow.queue_id, within=within)
    return sum(text is None or serves(workers.told(text), workflow.name) for (text,) in rows)


def serves(info: Mapping[str, Any], name: str) -> bool:
    """Does a worker that says this of itself take runs of that workflow?"""
    if info.get("prefixes"):
        return name.startswith(tuple(info["prefixes"]))
    return name in info.get("handlers", ())
