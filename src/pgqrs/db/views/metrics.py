"""What a store and its workflows are doing, in numbers that stay cheap however much has ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from math import floor
from typing import Any, NamedTuple

from pgqrs.db import migrations
from pgqrs.db.database import Database, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.db.tables import queues, workflows
from pgqrs.db.tables.queues import Queue
from pgqrs.reports import (
    CappedCount,
    LiveRuns,
    OutboxStats,
    QueueDepth,
    ScheduleStats,
    StoreStats,
    WorkerHealth,
    WorkflowMetrics,
)
from pgqrs.types import RunStatus

_SQL = load(__package__, "metrics")

# Beyond this a count says "more": nobody acts differently on 20,000 than on 30,000.
MOST_COUNTED = 10_000
# Durations are taken from this many of the newest ended runs: enough for a p95, read in about 20 ms.
MOST_SAMPLED = 10_000
# Priorities that are looked at over all queues; whoever uses more gets a capped count.
MOST_LEVELS = 2_000
# A scrape looks at so many queues, the first by name, and reads so many entries of an index for each kind of count:
# with one queue a count goes up to MOST_COUNTED, with a hundred to a hundredth of this.
MOST_QUEUES = 1_000
MOST_READ = 50_000
LEAST_COUNTED = 100


class QueueWorkers(NamedTuple):
    """Workers of one queue that never said goodbye; of several queues when it has no name."""

    queue: str | None
    ready: int
    stale: int


class StoreGauges(NamedTuple):
    """What a scrape shows."""

    queues: Sequence[QueueDepth]
    live: Sequence[LiveRuns]
    workers: Sequence[QueueWorkers]
    unpublished: int
    dead_events: int


@store_call(Kind.READ, idempotent=True)
async def of_workflow(db: Database, name: str, *, window: timedelta, live_within: float) -> WorkflowMetrics:
    found = await workflows.get(db, name)
    queue = await queues.get(db, name)
    counts = await db.fetch(_SQL["runs_of_workflow_by_status"], workflow_id=found.workflow_id, most=MOST_COUNTED + 1)
    sample = await db.fetch(
        _SQL["ended_sample"],
        workflow_id=found.workflow_id,
        window=window.total_seconds(),
        most=MOST_SAMPLED + 1,
    )
    sampled, newest = len(sample) > MOST_SAMPLED, sample[:MOST_SAMPLED]
    succeeded = sum(status == RunStatus.SUCCESS for status, _, _ in newest)
    durations = sorted(float(took) for _, took, _ in newest if took is not None)
    waits = sorted(float(waited) for _, _, waited in newest if waited is not None)
    [depth] = await _depths(db, [queue])
    return WorkflowMetrics(
        workflow=name,
        window=window,
        runs=_by_status(counts),
        ended=CappedCount(len(newest), sampled),
        success_rate=100.0 * succeeded / len(newest) if newest else None,
        avg_duration=_seconds(sum(durations) / len(durations)) if durations else None,
        p50_duration=percentile(durations, 0.50),
        p95_duration=percentile(durations, 0.95),
        p50_wait=percentile(waits, 0.50),
        p95_wait=percentile(waits, 0.95),
        queue=depth,
        live_workers=await workflows.count_live_workers(db, found, within=live_within),
    )


@store_call(Kind.READ, idempotent=True)
async def of_store(db: Database, *, live_within: float) -> StoreStats:
    """Everything but the size of a file, which the database need not be asked for."""
    most = MOST_COUNTED + 1
    [health] = await db.fetch(_SQL["workers_by_health"], within=live_within)
    [outbox] = await db.fetch(_SQL["outbox_counts"], most=most)
    [schedules] = await db.fetch(_SQL["schedule_counts"])
    live = await _live(db, most=most)
    [size] = await db.fetch(_SQL["database_bytes"], schema=db.dialect.schema)
    return StoreStats(
        schema_version=await migrations.version(db),
        runs=_by_status(await db.fetch(_SQL["runs_by_status"], most=most)),
        live=tuple(LiveRuns(name, *map(_capped, counts)) for name, *counts in live),
        queues=tuple(await _depths(db, await queues.list_all(db))),
        workers=WorkerHealth(*health),
        outbox=OutboxStats(_capped(outbox[0]), _capped(outbox[1])),
        schedules=ScheduleStats(*schedules),
        database_bytes=size[0],
    )


@store_call(Kind.READ, idempotent=True)
async def gauges(db: Database, *, live_within: float) -> StoreGauges:
    """Asked every few seconds: all its counts together read no more than a budget, however many queues there are."""
    asked = (await queues.list_all(db))[:MOST_QUEUES]
    most = max(LEAST_COUNTED, min(MOST_COUNTED, MOST_READ // max(len(asked), 1)))
    live = await _live(db, most=most, limit=MOST_QUEUES)
    [outbox] = await db.fetch(_SQL["outbox_counts"], most=MOST_COUNTED)
    by_queue = await db.fetch(_SQL["workers_by_queue"], within=live_within)
    return StoreGauges(
        queues=await _depths(db, asked, most=most),
        live=[LiveRuns(name, *(CappedCount(each, capped=each >= most) for each in counts)) for name, *counts in live],
        workers=[QueueWorkers(*row) for row in by_queue],
        unpublished=outbox[0],
        dead_events=outbox[1],
    )


@store_call(Kind.READ, idempotent=True)
async def live_runs(db: Database, *, limit: int, after: str) -> list[LiveRuns]:
    """Of the workflows behind `after`, by name."""
    rows = await _live(db, most=MOST_COUNTED + 1, limit=limit, after=after)
    return [LiveRuns(name, *map(_capped, counts)) for name, *counts in rows]


async def _live(db: Database, *, most: int, limit: int = 2**31 - 1, after: str = "") -> Sequence[Row]:
    return await db.fetch(_SQL["live_runs_by_workflow"], most=most, workflows=limit, after=after)


@store_call(Kind.READ, idempotent=True)
async def depths(db: Database, asked: Sequence[Queue]) -> list[QueueDepth]:
    """Of these queues, in their order."""
    return await _depths(db, asked)


async def _depths(db: Database, asked: Sequence[Queue], *, most: int | None = None) -> list[QueueDepth]:
    ids = [queue.queue_id for queue in asked]
    most = MOST_COUNTED + 1 if most is None else most
    levels = await db.fetch(_SQL["queue_depths"], queue_ids=ids, most=most, levels=MOST_LEVELS)
    by_queue: defaultdict[int, list[Row]] = defaultdict(list)
    for row in levels:
        by_queue[row[0]].append(row)
    exhausted = {row[0]: row[1:] for row in await db.fetch(_SQL["exhausted_depths"], queue_ids=ids, most=most)}
    found = []
    for queue in asked:
        mine = by_queue[queue.queue_id]
        dead, last_later, last_leased = exhausted.get(queue.queue_id, (0, 0, 0))
        ready = sum(row[1] for row in mine)
        later = sum(row[2] for row in mine) + last_later
        leased = sum(row[3] for row in mine) + last_leased
        ages = [float(row[4]) for row in mine if row[4] is not None and row[4] >= 0]
        found.append(
            QueueDepth(
                queue=queue.name,
                paused=queue.paused_at is not None,
                ready=ready,
                scheduled=later - leased,
                leased=leased,
                dead=dead,
                oldest_ready_age_seconds=max(ages, default=None),
                capped=len(levels) >= MOST_LEVELS
                or any(number >= most for row in mine for number in row[1:4])
                or any(number >= most for number in (dead, last_later)),
            )
        )
    return found


def _by_status(rows: Sequence[Sequence[Any]]) -> dict[RunStatus, CappedCount]:
    return {RunStatus(status): _capped(number) for status, number in rows}


def _capped(number: int) -> CappedCount:
    return CappedCount(min(number, MOST_COUNTED), number > MOST_COUNTED)


def percentile(ordered: Sequence[float], part: float) -> timedelta | None:
    """As percentile_cont has it: between two values, in proportion."""
    if not ordered:
        return None
    place = part * (len(ordered) - 1)
    lower = floor(place)
    upper = min(lower + 1, len(ordered) - 1)
    return _seconds(ordered[lower] + (ordered[upper] - ordered[lower]) * (place - lower))


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)
