"""Retention beside work at full speed: how much of the throughput is left while finished runs are deleted.

`ROWS=1000000 make bench WHAT=retention`. Rounds with and without a janitor alternate in one process; each round with
one deletes on from where the last one stopped, and the rest is deleted after the rounds, beside no work at all.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable

import pgqrs
from benchmarks.databases import both
from pgqrs.db.queries import Query
from pgqrs.db.tables import workflows
from pgqrs.engine.janitor import Janitor
from pgqrs.engine.loop import Loop

ROWS = int(os.environ.get("ROWS", "1_000_000"))
ROUNDS, SECONDS = int(os.environ.get("ROUNDS", "9")), float(os.environ.get("SECONDS", "3"))
MESSAGES, RUNS, BATCH, CONCURRENCY = 1_000, 500, 100, 50
CHUNK = 50_000

NUMBERS = """with recursive n (i) as (
    select cast(:first as bigint) + 1
  union all
    select i + 1 from n where i < cast(:first as bigint) + cast(:count as bigint)
)"""
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
            await measure(name, store)


async def measure(name: str, store: pgqrs.Store) -> None:
    workflow_id = await filled(name, store)
    await store.create_queue("tasks")
    await store.create_workflow("work")
    retention = pgqrs.retention(store)
    await retention.keep("runs", days=30, workflow="old")
    works: dict[str, Callable[[pgqrs.Store], Awaitable[float]]] = {"messages": drained_messages, "runs": drained_runs}
    rates: dict[tuple[str, bool], list[float]] = {(what, beside): [] for what in works for beside in (False, True)}
    deleted, seconds = 0, 0.0
    for what, work in works.items():
        await work(store)  # warm
        for _ in range(ROUNDS):
            for beside in (False, True):
                loop = Loop("janitor", Janitor(store.database, store.config).turn, hints=store.database.hints)
                running = asyncio.create_task(loop.run()) if beside else None
                before, began = await count(store, workflow_id), time.perf_counter()
                rates[what, beside].append(await work(store))
                if running is not None:
                    loop.stop()
                    await running
                    await store.database.execute(FREE)
                    deleted += before - await count(store, workflow_id)
                    seconds += time.perf_counter() - began
        without, with_janitor = (statistics.median(rates[what, beside]) for beside in (False, True))
        pairs = [b / a for a, b in zip(rates[what, False], rates[what, True], strict=True)]
        print(
            f"{name:<9} {what:<9} {without:>8,.0f}/s undisturbed, {with_janitor:>8,.0f}/s beside the janitor: "
            f"{with_janitor / without:.0%} (median of neighbouring rounds {statistics.median(pairs):.0%})",
            flush=True,
        )
    left = await count(store, workflow_id)
    print(f"{name:<9} deleted {deleted:,} runs meanwhile, {deleted / max(seconds, 0.001):,.0f} runs/s", flush=True)
    if not left:
        raise RuntimeError(f"{ROWS:,} rows are too few for these rounds: nothing was left to delete in the last ones")
    began = time.perf_counter()
    report = await retention.apply()
    took = time.perf_counter() - began
    if report.total != left or await count(store, workflow_id):
        raise RuntimeError(f"{report.total} of {left} deleted")
    print(
        f"{name:<9} deleted the other {left:,} beside no work in {took:.0f} s, {left / took:,.0f} runs/s; "
        f"{ROWS:,} would take {ROWS * took / left:.0f} s"
    )


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
