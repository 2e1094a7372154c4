"""How a store does: what ended lately and how long it took, bucket by bucket; every workflow in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgqrs.db.database import Database, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.db.tables import workflows
from pgqrs.db.views.metrics import percentile
from pgqrs.reports import CappedCount
from pgqrs.types import RunStatus

_SQL = load(__package__, "throughput")

# As long as the hour holds no more than can be counted at once; else less of the past, in finer buckets.
WINDOWS = (3600.0, 600.0, 60.0)
BUCKETS = 60
# Read from the index alone: some 5 ms.
MOST_ENDED = 20_000
# Durations need the rows themselves.
MOST_SAMPLED = 2_000
# In a list of workflows nobody tells 1,000 from 2,000.
MOST_LISTED = 1_000


@dataclass(frozen=True, slots=True)
class Throughput:
    """What ended, by bucket, the oldest first; seconds at work of a sample of it. `capped`: there was more."""

    window_seconds: float
    bucket_seconds: float
    now_at: datetime
    succeeded: tuple[int, ...]
    failed: tuple[int, ...]
    cancelled: tuple[int, ...]
    p50_seconds: tuple[float | None, ...]
    p95_seconds: tuple[float | None, ...]
    capped: bool

    @property
    def ended(self) -> int:
        return sum(self.succeeded) + sum(self.failed) + sum(self.cancelled)


@dataclass(frozen=True, slots=True)
class WorkflowGlance:
    """A workflow in one line; `succeeded` and `failed` of the window that was asked for."""

    workflow: str
    paused_at: datetime | None
    pending: CappedCount
    running: CappedCount
    paused: CappedCount
    succeeded: CappedCount
    failed: CappedCount
    succeeded_at: datetime | None
    failed_at: datetime | None

    @property
    def success_rate(self) -> float | None:
        """In percent; None when nothing ended, or too much did to be counted."""
        ended = self.succeeded.count + self.failed.count
        if not ended or self.succeeded.capped or self.failed.capped:
            return None
        return 100.0 * self.succeeded.count / ended

    @property
    def last_ended_at(self) -> datetime | None:
        return max((at for at in (self.succeeded_at, self.failed_at) if at is not None), default=None)


@store_call(Kind.READ, idempotent=True)
async def clock(db: Database) -> datetime:
    """The database's now."""
    found: datetime = (await db.fetch(_SQL["clock"]))[0][0]
    return found


@store_call(Kind.READ, idempotent=True)
async def pulse(db: Database) -> Throughput:
    """Of the last hour, or of less of it when much has ended."""
    ended_of = [each.workflow_id for each in await workflows.list_all(db)]
    for window in WINDOWS:
        width = window / BUCKETS
        rows = await db.fetch(
            _SQL["ended_per_bucket"], ended_of=ended_of, window=window, width=width, most=MOST_ENDED + 1
        )
        total = sum(int(row[2]) for row in rows)
        if total <= MOST_ENDED:
            break
    # One in so many, so that they are spread over the window however much there is.
    every = total // MOST_SAMPLED + 1
    sample = await db.fetch(
        _SQL["durations_sampled"], ended_of=ended_of, window=window, every=every, most=2 * MOST_SAMPLED
    )
    durations: list[list[float]] = [[] for _ in range(BUCKETS)]
    for ago, seconds in sample:
        if seconds is not None:
            durations[_place(float(ago) / width)].append(float(seconds))
    ordered = [sorted(each) for each in durations]
    counts = {status: [0] * BUCKETS for status in (RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.CANCELLED)}
    for bucket, status, number in rows:
        counts[RunStatus(status)][_place(float(bucket))] += int(number)
    return Throughput(
        window_seconds=window,
        bucket_seconds=width,
        now_at=(await db.fetch(_SQL["clock"]))[0][0],
        succeeded=tuple(counts[RunStatus.SUCCESS]),
        failed=tuple(counts[RunStatus.ERROR]),
        cancelled=tuple(counts[RunStatus.CANCELLED]),
        p50_seconds=_percentiles(ordered, 0.50),
        p95_seconds=_percentiles(ordered, 0.95),
        capped=total > MOST_ENDED,
    )


@store_call(Kind.READ, idempotent=True)
async def workflows_at_a_glance(db: Database, *, window: float, limit: int, after: str = "") -> list[WorkflowGlance]:
    """By name, from the one behind `after` on."""
    rows = await db.fetch(_SQL["workflows_at_a_glance"], window=window, after=after, page=limit, most=MOST_LISTED + 1)
    return [_glance(row) for row in rows]


def _glance(row: Row) -> WorkflowGlance:
    name, paused_at, *counts, succeeded_at, failed_at = row
    pending, running, paused, succeeded, failed = (_capped(int(number)) for number in counts)
    return WorkflowGlance(
        workflow=name,
        paused_at=paused_at,
        pending=pending,
        running=running,
        paused=paused,
        succeeded=succeeded,
        failed=failed,
        succeeded_at=succeeded_at,
        failed_at=failed_at,
    )


def _place(ago: float) -> int:
    """Where a bucket that is so many buckets old stands: the oldest first. A clock may have ticked in between."""
    return BUCKETS - 1 - min(max(int(ago), 0), BUCKETS - 1)


def _percentiles(ordered: Sequence[Sequence[float]], part: float) -> tuple[float | None, ...]:
    found = [percentile(each, part) for each in ordered]
    return tuple(None if each is None else each.total_seconds() for each in found)


def _capped(number: int) -> CappedCount:
    return CappedCount(min(number, MOST_LISTED), number > MOST_LISTED)
