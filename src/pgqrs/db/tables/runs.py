"""Runs and their steps, as they are read; `lifecycle.py` is where they change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pgqrs.clock import EPOCH
from pgqrs.db.database import Database, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.db.readable import most_behind
from pgqrs.errors import RunNotFound, SerializationError
from pgqrs.serialization import decode, encode
from pgqrs.types import RunStatus, StepStatus

_SQL = load(__package__, "runs")

_ORIGIN = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class RunRow:
    run_id: int
    workflow: str
    status: RunStatus
    input: str | None
    output: str | None
    error: str | None
    last_error: str | None
    created_at: datetime
    started_at: datetime | None
    paused_at: datetime | None
    completed_at: datetime | None
    updated_at: datetime
    worker_id: int | None
    attempt: int
    max_attempts: int
    priority: int
    idempotency_key: str | None
    parent_run_id: int | None
    waiting_for: str | None
    attributes: str | None
    deleted_at: datetime | None
    delete_reason: str | None
    error_signature: str | None
    dead_letter_of: int | None
    progress: str | None


@dataclass(frozen=True, slots=True)
class StepRow:
    step_id: str
    ordinal: int
    status: StepStatus
    input: str | None
    output: str | None
    error: str | None
    attempts: int
    started_at: datetime | None
    completed_at: datetime | None
    # Its place among the results that reached the handler.
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What a replay needs of a step."""

    step_id: str
    ordinal: int
    status: StepStatus
    output: str | None
    error: str | None
    attempts: int
    # Of one that waited: who answered it.
    input: str | None = None
    # Its place among the results that reached the handler; None where none is known.
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class BriefStep:
    """What people who watch a run are told of a step."""

    step_id: str
    status: StepStatus
    attempts: int
    error: str | None


@store_call(Kind.READ, idempotent=True)
async def get(db: Database, run_id: int) -> RunRow:
    rows = await db.fetch(_SQL["get_run"], run_id=run_id)
    if not rows:
        raise RunNotFound(run_id)
    return _row(rows[0])


@store_call(Kind.READ, idempotent=True)
async def workflow_of(db: Database, run_id: int) -> str:
    """The name of its workflow."""
    rows = await db.fetch(_SQL["workflow_of_run"], run_id=run_id)
    if not rows:
        raise RunNotFound(run_id)
    return str(rows[0][0])


@store_call(Kind.READ, idempotent=True)
async def several(db: Database, run_ids: Sequence[int]) -> list[RunRow]:
    """Those of the given that are there, newest first."""
    return [_row(row) for row in await db.fetch(_SQL["get_runs"], run_ids=run_ids)]


@store_call(Kind.READ, idempotent=True)
async def finished(db: Database, run_ids: Sequence[int]) -> set[int]:
    """Those of the given that have come to an end, or are deleted."""
    return {row[0] for row in await db.fetch(_SQL["finished_runs"], given=[(run_id,) for run_id in run_ids])}


@store_call(Kind.READ, idempotent=True)
async def steps(db: Database, run_id: int) -> list[StepRow]:
    rows = await db.fetch(_SQL["list_steps"], run_id=run_id)
    return [_step(row) for row in rows]


class StepPlace(NamedTuple):
    """Where a page of a run's steps begins: behind this one."""

    at: datetime = EPOCH
    ordinal: int = -1
    step_id: str = ""


FIRST_STEP = StepPlace()


def place_of(step: StepRow) -> StepPlace:
    return StepPlace(step.completed_at or step.started_at or EPOCH, step.ordinal, step.step_id)


@store_call(Kind.READ, idempotent=True)
async def steps_page(
    db: Database, run_id: int, *, limit: int, after: StepPlace = FIRST_STEP, cut: int
) -> list[StepRow]:
    """As `steps`, a page at a time; values are cut."""
    rows = await db.fetch(_SQL["steps_page"], run_id=run_id, cut=cut, **_behind(after, limit))
    return [_step(row) for row in rows]


@store_call(Kind.READ, idempotent=True)
async def step_sizes(db: Database, run_id: int, *, limit: int, after: StepPlace) -> list[tuple[StepPlace, int]]:
    """The places of steps, and how many characters their values have."""
    rows = await db.fetch(_SQL["step_sizes"], run_id=run_id, **_behind(after, limit))
    return [(StepPlace(at, ordinal, step_id), int(size)) for step_id, ordinal, at, size in rows]


@store_call(Kind.READ, idempotent=True)
async def steps_named(db: Database, run_id: int, step_ids: Sequence[str]) -> list[StepRow]:
    """Those of the given that there are."""
    rows = await db.fetch(_SQL["steps_named"], run_id=run_id, given=[(each,) for each in step_ids])
    return [_step(row) for row in rows]


def _behind(after: StepPlace, limit: int) -> dict[str, Any]:
    place = {"after_time": after.at, "after_ordinal": after.ordinal, "after_step": after.step_id}
    # The first page begins before all times, also before those that no datetime can hold.
    return {"ever": EPOCH, "most": most_behind(after.at, limit), "is_first": int(after == FIRST_STEP), **place}


def _step(row: Row) -> StepRow:
    return StepRow(row[0], row[1], StepStatus(row[2]), *row[3:])


@store_call(Kind.READ, idempotent=True)
async def recorded_steps(db: Database, run_ids: Sequence[int]) -> dict[int, dict[str, RecordedStep]]:
    """The steps of many runs at once, by run and step id."""
    found: dict[int, dict[str, RecordedStep]] = {run_id: {} for run_id in run_ids}
    for run_id, step_id, ordinal, status, *rest in await db.fetch(_SQL["steps_of_runs"], run_ids=run_ids):
        found[run_id][step_id] = RecordedStep(step_id, ordinal, StepStatus(status), *rest)
    return found


@store_call(Kind.READ, idempotent=True)
async def steps_in_brief(db: Database, run_ids: Sequence[int]) -> dict[int, list[BriefStep]]:
    """How far many runs are, their steps in the order in which they were recorded."""
    found: dict[int, list[BriefStep]] = {run_id: [] for run_id in run_ids}
    for run_id, step_id, status, attempts, error in await db.fetch(_SQL["steps_in_brief"], run_ids=run_ids):
        found[run_id].append(BriefStep(step_id, StepStatus(status), attempts, error))
    return found


def _row(row: Sequence[object]) -> RunRow:
    run_id, workflow, status, *rest, headers = row
    found = (run_id, workflow, RunStatus(str(status)), *rest, progress_in(headers))  # type: ignore[arg-type]
    return RunRow(*found)  # type: ignore[arg-type]


def progress_in(headers: str | None) -> str | None:
    """What the handler showed of its progress: the headers without the run's origin."""
    found = _with_origin(headers)
    if not found:
        return headers
    left = {name: value for name, value in found.items() if name not in _ORIGIN}
    return encode(left) if left else None


def origin(headers: str | None) -> dict[str, str]:
    """Where the run comes from, as W3C Trace Context has it: `traceparent`, and perhaps `tracestate`."""
    return {name: value for name, value in _with_origin(headers).items() if name in _ORIGIN}


def _with_origin(headers: str | None) -> dict[str, Any]:
    """The headers, if there is an origin in them. Most have none, and are not decoded for that."""
    if headers is None or '"traceparent"' not in headers:
        return {}
    try:
        found = decode(headers)
    except SerializationError:
        # Somebody wrote into the table: neither a list nor a run shall fail for it.
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("traceparent"), str) else {}
