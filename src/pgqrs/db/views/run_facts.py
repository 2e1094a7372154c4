"""Facts about one run: what it waits for, who holds it, who could take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgqrs.db.database import Database, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.db.tables import workers, workflows
from pgqrs.errors import RunNotFound
from pgqrs.types import RunStatus, StepStatus

_SQL = load(__package__, "run_facts")


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that has begun and has no result yet, or failed."""

    step_id: str
    status: StepStatus
    attempts: int
    output: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker that never said goodbye, and what it says of itself."""

    name: str
    silent_seconds: float
    info: Mapping[str, Any]

    def wants(self, workflow: str) -> bool:
        return workflows.serves(self.info, workflow)

    @property
    def handlers(self) -> tuple[str, ...]:
        return tuple(self.info.get("handlers", ()))


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Everything about one run that decides whether it can move."""

    run_id: int
    workflow: str
    status: RunStatus
    waiting_for: str | None
    last_error: str | None
    paused_at: datetime | None
    completed_at: datetime | None
    deleted_at: datetime | None
    attempt: int
    queue_id: int
    queue: str
    queue_paused_at: datetime | None
    # Of its message, which a run that has not ended has.
    message_id: int | None
    visible_after: datetime | None
    visible_in_seconds: float | None
    leased_by: int | None
    attempts: int | None
    max_attempts: int | None
    priority: int | None
    holder: str | None
    holder_silent_seconds: float | None
    since_seconds: float
    error: str | None
    steps: tuple[OpenStep, ...]
    # Those that have not ended, the first of them: run, workflow, status.
    children: tuple[tuple[int, str, RunStatus], ...]
    # Those that failed or were cancelled, when the run itself has ended so.
    failed_children: tuple[tuple[int, str, RunStatus], ...]
    # The last steps that were completed, newest first, when the run itself has ended so.
    completed: tuple[str, ...]
    servers: tuple[WorkerFacts, ...]
    ready_before: int


@store_call(Kind.READ, idempotent=True)
async def facts(db: Database, run_id: int) -> RunFacts:
    rows = await db.fetch(_SQL["facts_of_run"], run_id=run_id)
    if not rows:
        raise RunNotFound(run_id)
    [row] = rows
    steps = await db.fetch(_SQL["steps_under_way"], run_id=run_id)
    children = await db.fetch(_SQL["children_under_way"], run_id=run_id)
    ended_badly = row[2] in (RunStatus.ERROR, RunStatus.CANCELLED)
    failed = await db.fetch(_SQL["children_that_failed"], run_id=run_id) if ended_badly else []
    completed = await db.fetch(_SQL["steps_completed_last"], run_id=run_id) if ended_badly else []
    servers = await db.fetch(_SQL["workers_that_are_there"])
    queue_id, message_id, priority = row[9], row[12], row[18]
    before: list[Row] = []
    if message_id is not None:
        before = await db.fetch(_SQL["ready_before"], queue_id=queue_id, priority=priority, message_id=message_id)
    _, workflow, status, *rest = row
    found: tuple[Any, ...] = (
        tuple(OpenStep(step[0], StepStatus(step[1]), *step[2:]) for step in steps),
        tuple((child[0], child[1], RunStatus(child[2])) for child in children),
        tuple((child[0], child[1], RunStatus(child[2])) for child in failed),
        tuple(step[0] for step in completed),
        tuple(_server(*each) for each in servers),
        int(before[0][0]) if before else 0,
    )
    return RunFacts(run_id, workflow, RunStatus(status), *rest, *found)


def _server(name: str, silent_seconds: float, info: str | None) -> WorkerFacts:
    return WorkerFacts(name, float(silent_seconds), workers.told(info))
