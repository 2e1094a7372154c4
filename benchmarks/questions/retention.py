"""Retention beside work at full speed: how much of the throughput is left while finished runs are deleted.

`ROWS=1000000 make bench WHAT=retention`. Rounds with and without a janitor alternate in one process, until the last
of the finished runs is deleted.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable

import pgqrs
from benchmarks.databases import both
from benchmarks.filling import CHUNK, NUMBERS
from pgqrs.db.queries import Query
from pgqrs.db.tables import workflows
from pgqrs.engine.background import BackgroundLoop
from pgqrs.engine.janitor import PAUSE_LENGTHS, Janitor

ROWS = int(os.environ.get("ROWS", "1_000_000"))
ROUNDS, SECONDS = int(os.environ.get("ROUNDS") or "3"), float(os.environ.get("SECONDS", "5"))
# So many rounds beside the janitor for each without; how long its pauses are, in batches.
BESIDE, PAUSES = 4, float(os.environ.get("PAUSES", PAUSE_LENGTHS))
MESSAGES, RUNS, BATCH, CONCURRENCY = 1_000, 500, 100, 50
# For those who have no time for all of them: how many were deleted in this time is printed.
MOST_SECONDS = float(os.environ.get("MOST_SECONDS", "inf"))

FILL_RUNS = Query(
    "fill_runs",
    f"""
insert into pgqrs_workflow_runs (run_id, workflow_id, status, input, output, created_at, started_at, completed_at,
    updated_at, worker_id, attempt, max_attempts)
{NUMBERS}
select i, :workflow_id, 'SUCCESS', '[1, 2, 3]', '"a result of ordinary length"', {{after -8640000}},
    {{after -8640000}}, {{after (i - 8640000)}}, {{after -8640000}}, 1, 1, 3
from n""",
)
FILL_STEPS = Query(
    "fill_steps",
    f"""
insert into pgqrs_workflow_steps (run_id, step_id, ordinal, status, output, attempts, started_at, completed_at)
{NUMBERS}
select n.i, 'step_' || s.ordinal, s.ordinal, 'SUCCESS', '"a result of ordinary length"', 1, {{now}}, {{now}}
from n cross join (select 1 as ordinal union all select 2 union all select 3) as s""",
)
FILL_EVENTS = Query(
    "fill_events",
    f"""
insert into pgqrs_workflow_events (run_id, event_type, data, created_at)
{NUMBERS}
select n.i, e.kind, '[]', {{after -8640000}}
from n cross join (select 'created' as kind union all select 'succeeded') as e""",
)
COUNT = Query("count", "select count(*) from pgqrs_workflow_runs where workflow_id = :workflow_id")


async def main() -> None:
    async with both() as stores:
        for name, store in stores.items():
            if name in (os.environ.get("ON") or name):
                await measure(name, store)


async def measure(name: str, store: pgqrs.Store) -> None:
    workflow_id = await filled(name, store)
    await store.create_queue("tasks")
    await store.create_workflow("work")
    await pgqrs.retention(store).keep("runs", days=30, workflow="old")
    beside = Beside(store, workflow_id)
    rates = {what: await alternate(beside, work, most=most) for what, work, most in (
        ("messages", drained_messages, ROUNDS),
        # Until the last of them is gone.
        ("runs", drained_runs, 10_000),
    )}  # fmt: skip
    for what, (without, with_janitor) in rates.items():
        if not with_janitor:
            raise RuntimeError(f"{ROWS:,} rows are too few: nothing was left to delete beside {what}")
        a, b = statistics.median(without), statistics.median(with_janitor)
        print(
            f"{name:<9} {what:<9} {a:>8,.0f}/s undisturbed, {b:>8,.0f}/s beside the janitor: {b / a:.0%} "
            f"(medians of {len(without)} and {len(with_janitor)} rounds)",
            flush=True,
        )
    print(
        f"{name:<9} deleted {beside.deleted:,} runs meanwhile, in {beside.seconds:.0f} s of work: "
        f"{beside.deleted / beside.seconds:,.0f} runs/s",
        flush=True,
    )


class Beside:
    """Work beside a janitor, and how far that one came."""

    def __init__(self, store: pgqrs.Store, workflow_id: int) -> None:
        self.store = store
        self.workflow_id = workflow_id
        self.left, self.deleted, self.seconds = ROWS, 0, 0.0

    async def __call__(self, work: Callable[[pgqrs.Store], Awaitable[float]]) -> float:
        db = self.store.database
        loop = BackgroundLoop("janitor", Janitor(db, self.store.config, pause_lengths=PAUSES).turn, hints=db.hints)
        running = asyncio.create_task(loop.run())
        began = time.perf_counter()
        rate = await work(self.store)
        self.seconds += time.perf_counter() - began
        loop.stop()
        await running
        await db.execute(FREE)
        left = await count(self.store, self.workflow_id)
        self.deleted, self.left = self.deleted + self.left - left, left
        return rate


async def alternate(
    beside: Beside, work: Callable[[pgqrs.Store], Awaitable[float]], *, most: int
) -> tuple[list[float], list[float]]:
    """A round by itself, then some beside the janitor, and so on, until nothing is left to delete."""
    without: list[float] = []
    with_janitor: list[float] = []
    await work(beside.store)  # warm
    while beside.left and len(without) < most and beside.seconds < MOST_SECONDS:
        without.append(await work(beside.store))
        for _ in range(BESIDE):
            rate = await beside(work)
            # The last one had nothing to delete for a part of its time.
            if beside.left:
                with_janitor.append(rate)
    return without, with_janitor


# Another janitor may begin at once, as this one has ended.
FREE = Query("free", "update pgqrs_retention set visible_after = {now}")


async def filled(name: str, store: pgqrs.Store) -> int:
    """Finished runs with three steps and two events each, without statistics."""
    began = time.perf_counter()
    await store.create_workflow("old")
    workflow_id = (await workflows.get(store.database, "old")).workflow_id
    for first in range(0, ROWS, CHUNK):
        size = min(CHUNK, ROWS - first)
        await store.database.execute(FILL_RUNS, first=first, count=size, workflow_id=workflow_id)
        await store.database.execute(FILL_STEPS, first=first, count=size)
        await store.database.execute(FILL_EVENTS, first=first, count=size)
    if store.database.dialect.is_postgres:
        await store.database.execute(
            Query("next", "select setval(pg_get_serial_sequence('public.pgqrs_workflow_runs', 'run_id'), :last)"),
            last=ROWS,
        )
        await store.database.execute(Query("vacuum", "vacuum"))
    print(f"{name:<9} filled {ROWS:,} runs in {time.perf_counter() - began:.0f} s", flush=True)
    return workflow_id


async def count(store: pgqrs.Store, workflow_id: int) -> int:
    return int((await store.database.fetch(COUNT, workflow_id=workflow_id))[0][0])


async def drained_messages(store: pgqrs.Store) -> float:
    """Messages per second: enqueued by the thousand, leased and archived by the hundred, for some seconds."""
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    done, spent = 0, 0.0
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        await producer.enqueue_many([{"n": 1}] * MESSAGES)
        started = time.perf_counter()
        while taken := await consumer.dequeue(BATCH):
            done += len(await consumer.archive_many(taken))
        spent += time.perf_counter() - started
    await consumer.close()
    return done / spent


async def drained_runs(store: pgqrs.Store) -> float:
    """Runs of one step per second, by one worker."""

    async def handler(ctx: pgqrs.PyWorkflow, params: int) -> int:
        return int(await ctx.step("one", lambda: params))

    worker = await pgqrs.worker("bench", concurrency=CONCURRENCY).workflows({"work": handler}).create(store)
    done, spent = 0, 0.0
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        await pgqrs.workflow("work").trigger_many(list(range(RUNS))).execute(store)
        started = time.perf_counter()
        await worker.run_until_idle()
        spent += time.perf_counter() - started
        done += RUNS
    await worker.close()
    return done / spent
