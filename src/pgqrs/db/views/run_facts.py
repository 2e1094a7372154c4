"""Facts about one run: what it waits for, who holds it, who could take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
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


_FIELDS = tuple(field.name for field in fields(RunFacts))
# Those that `facts_of_run` reads, in its order; a test holds them against the SQL.
RUN_COLUMNS = _FIELDS[: _FIELDS.index("error") + 1]


@store_call(Kind.READ, idempotent=True)
async def facts(db: Database, run_id: int) -> RunFacts:
    rows = await db.fetch(_SQL["facts_of_run"], run_id=run_id)
    if not rows:
        raise RunNotFound(run_id)
    known = dict(zip(RUN_COLUMNS, rows[0], strict=True))
    known["status"] = RunStatus(known["status"])
    steps = await db.fetch(_SQL["steps_under_way"], run_id=run_id)
    children = await db.fetch(_SQL["children_under_way"], run_id=run_id)
    ended_badly = known["status"] in (RunStatus.ERROR, RunStatus.CANCELLED)
    failed = await db.fetch(_SQL["children_that_failed"], run_id=run_id) if ended_badly else []
    completed = await db.fetch(_SQL["steps_completed_last"], run_id=run_id) if ended_badly else []
    servers = await db.fetch(_SQL["workers_that_are_there"])
    before: list[Row] = []
    if known["message_id"] is not None:
        place = {name: known[name] for name in ("queue_id", "priority", "message_id")}
        before = await db.fetch(_SQL["ready_before"], **place)
    return RunFacts(
        **known,
        steps=tuple(
            OpenStep(step_id, StepStatus(status), attempts, output, error)
            for step_id, status, attempts, output, error in steps
        ),
        children=tuple((child, workflow, RunStatus(status)) for child, workflow, status in children),
        failed_children=tuple((child, workflow, RunStatus(status)) for child, workflow, status in failed),
        completed=tuple(step_id for (step_id,) in completed),
        servers=tuple(_server(*each) for each in servers),
        ready_before=int(before[0][0]) if before else 0,
    )


def _server(name: str, silent_seconds: float, info: str | None) -> WorkerFacts:
    return WorkerFacts(name, float(silent_seconds), workers.told(info))
