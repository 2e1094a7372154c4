"""What pages show of runs beside their rows: how far they are, when they are due, what they wait for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pgqrs.clock import EPOCH
from pgqrs.db.database import WHOLE, Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.db.readable import most_behind
from pgqrs.db.tables import workers
from pgqrs.db.tables.runs import FIRST_STEP, StepPlace
from pgqrs.types import StepStatus, WorkerInfo, WorkerStatus

_SQL = load(__package__, "run_details")

# Beyond this a bar shows no difference.
MOST_STEPS = 1_000
MOST_WAITS = 2_000
MOST_FAILED_ATTEMPTS = 1_000
MOST_CELLS = 10_000
# The data of an event that we wrote; a longer one is told by its beginning nowhere.
MOST_FACTS = 10_000
MOST_HELD = 20_000
# What becomes visible later than this was put off, and is not held.
LONGEST_LEASE_SECONDS = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is. Counts of steps are at most MOST_STEPS."""

    done: int = 0
    failed: int = 0
    open: int = 0
    # None for a run that has ended.
    due_in_seconds: float | None = None
    holder: str | None = None
    # As many steps as the last run of its workflow had that succeeded.
    expected: int = 0


class Waiting(NamedTuple):
    """A step that waits; `until` is JSON, None when only somebody can end it."""

    run_id: int
    step_id: str
    until: str | None
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class TimedStep:
    step_id: str
    ordinal: int
    status: StepStatus
    attempts: int
    started_at: datetime | None
    completed_at: datetime | None


class Cut(NamedTuple):
    """The beginning of a stored text, and how long it is."""

    text: str | None
    length: int | None

    @property
    def is_whole(self) -> bool:
        return self.length is None or len(self.text or "") >= self.length


@dataclass(frozen=True, slots=True)
class StepDetails:
    step: TimedStep
    input: Cut
    output: Cut
    error: Cut


class Cell(NamedTuple):
    """A step of one of many runs; seconds from its first beginning to its end."""

    run_id: int
    step_id: str
    status: StepStatus
    attempts: int
    ordinal: int
    seconds: float | None


class FailedAttempt(NamedTuple):
    step_id: str
    attempt: int
    kind: str
    message: str
    at: datetime


@store_call(Kind.READ, idempotent=True)
async def of_runs(db: Database, runs: Sequence[tuple[int, str]]) -> dict[int, RunProgress]:
    """Of runs and their workflows."""
    ids = [run_id for run_id, _ in runs]
    if not ids:
        return {}
    names = sorted({workflow for _, workflow in runs})
    steps = {row[0]: row[1:] for row in await db.fetch(_SQL["steps_so_far"], run_ids=ids, most=MOST_STEPS)}
    due = {row[0]: row[1:] for row in await db.fetch(_SQL["due"], run_ids=ids)}
    given = [(name,) for name in names]
    expected = {
        name: int(count)
        for name, count in await db.fetch(_SQL["steps_of_last_success"], given=given, most=MOST_STEPS)
    }
    found = {}
    for run_id, name in runs:
        done, failed, still_open = steps.get(run_id, (0, 0, 0))
        due_in_seconds, holder = due.get(run_id, (None, None))
        found[run_id] = RunProgress(
            int(done), int(failed), int(still_open), due_in_seconds, holder, expected.get(name, 0)
        )
    return found


@store_call(Kind.READ, idempotent=True)
async def waits(db: Database, run_ids: Sequence[int]) -> list[Waiting]:
    rows = await db.fetch(_SQL["open_waits"], run_ids=run_ids, most=MOST_WAITS) if run_ids else []
    return [Waiting(*row) for row in rows]


@store_call(Kind.READ, idempotent=True)
async def timeline(db: Database, run_id: int, *, limit: int, after: StepPlace = FIRST_STEP) -> list[TimedStep]:
    """From the step on that comes behind `after`: when it began, its ordinal, its id."""
    time, ordinal, step_id = after
    rows = await db.fetch(
        _SQL["timeline"],
        run_id=run_id,
        ever=EPOCH,
        after_time=time,
        after_ordinal=ordinal,
        after_step=step_id,
        is_first=int(after == FIRST_STEP),
        most=most_behind(time, limit),
    )
    return [_timed(row) for row in rows]


@store_call(Kind.READ, idempotent=True)
async def step(db: Database, run_id: int, step_id: str, *, cut: int) -> StepDetails | None:
    """None when it is not on record."""
    rows = await db.fetch(_SQL["step"], run_id=run_id, step_id=step_id, cut=cut)
    if not rows:
        return None
    *timed, given, given_length, output, output_length, error, error_length = rows[0]
    return StepDetails(_timed(timed), Cut(given, given_length), Cut(output, output_length), Cut(error, error_length))


@store_call(Kind.READ, idempotent=True)
async def step_value(db: Database, run_id: int, step_id: str, what: str, *, start: int, most: int) -> str:
    """A part of one value (`input`, `output` or `error`): `most` characters from the `start`th on, if any."""
    rows = await db.fetch(_SQL[f"step_{what}"], run_id=run_id, step_id=step_id, start=start, most=most)
    return str(rows[0][0] or "") if rows else ""


@store_call(Kind.READ, idempotent=True)
async def cells(db: Database, run_ids: Sequence[int]) -> list[Cell]:
    rows = await db.fetch(_SQL["steps_of_many"], run_ids=run_ids, most=MOST_CELLS) if run_ids else []
    return [Cell(row[0], row[1], StepStatus(row[2]), *row[3:]) for row in rows]


@store_call(Kind.READ, idempotent=True)
async def failed_attempts(db: Database, run_id: int) -> list[FailedAttempt]:
    """The oldest first; those of a run's history that speak of a step."""
    rows = await db.fetch(_SQL["failed_attempts"], run_id=run_id, most=MOST_FAILED_ATTEMPTS, cut=MOST_FACTS)
    return list(_attempts(reversed(rows)))


@store_call(Kind.READ, idempotent=True)
async def holder_of(db: Database, worker_id: int) -> str | None:
    rows = await db.fetch(_SQL["holder_of"], worker_id=worker_id)
    return str(rows[0][0]) if rows else None


class NextMessage(NamedTuple):
    """A message that is to be taken, or is held; the payload is cut."""

    message_id: int
    run_id: int | None
    priority: int
    enqueued_at: datetime
    attempts: int
    max_attempts: int
    holder: str | None
    due_in_seconds: float
    payload: str | None


@store_call(Kind.READ, idempotent=True)
async def next_messages(db: Database, queue_id: int, *, limit: int, cut: int) -> list[NextMessage]:
    """In the order in which they are taken."""
    return [
        NextMessage(*row) for row in await db.fetch(_SQL["next_messages"], queue_id=queue_id, most=limit, cut=cut)
    ]


@store_call(Kind.READ, idempotent=True)
async def workers_shown(db: Database, *, limit: int, cut: int = WHOLE) -> list[WorkerInfo]:
    """As `admin.workers`, for databases in which much waits: what each holds is counted up to MOST_HELD in all.

    What a worker says of itself in more characters than `cut` is left out.
    """
    held: dict[int, int] = {}
    for name in ("held_by_workers", "held_in_last_attempts"):
        for worker_id, number in await db.fetch(_SQL[name], within=LONGEST_LEASE_SECONDS, most=MOST_HELD):
            held[worker_id] = held.get(worker_id, 0) + int(number)
    rows = await db.fetch(_SQL["workers_shown"], most=limit, cut=cut)
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
            leased=held.get(worker_id, 0),
            info=workers.told(info),
        )
        for worker_id, queue, name, port, status, created_at, heartbeat_at, stopped_at, age, info in rows
    ]


def _attempts(rows: Iterable[Sequence[object]]) -> Iterable[FailedAttempt]:
    for _, text, at in rows:
        try:
            told = json.loads(str(text))
            attempt = int(told.get("attempt", 1))
        except (ValueError, AttributeError, TypeError):
            continue
        if isinstance(at, datetime):
            kind, message = str(told.get("type", "")), str(told.get("message", ""))
            yield FailedAttempt(str(told.get("step", "")), attempt, kind, message, at)


def _timed(row: Sequence[object]) -> TimedStep:
    step_id, ordinal, status, attempts, started_at, completed_at = row
    return TimedStep(step_id, ordinal, StepStatus(str(status)), attempts, started_at, completed_at)  # type: ignore[arg-type]
