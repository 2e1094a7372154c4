"""PgQueuer: jobs picked, handled and logged in batches."""

import asyncio
import json
import time
import uuid
from datetime import timedelta

import asyncpg
import harness
import uvloop
from harness import BATCH, PAYLOAD, PLAIN_QUEUE, Latencies, Measured, Task
from pgqueuer import PgQueuer, Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter

ENTRYPOINT, TAKEN, POOL = "plain", 500, 20
BYTES = json.dumps(PAYLOAD).encode()
SUCCESSFUL = "select count(*) from pgqueuer_log where status = 'successful'"
DRIVER = "asyncpg, uvloop"
stopwatch = harness.Stopwatch()


async def installed(task: Task) -> Queries:
    queries = Queries.from_asyncpg_connection(await asyncpg.connect(task.dsn))
    await queries.install()
    return queries


async def enqueue_batch(queries: Queries, size: int = BATCH) -> None:
    await queries.enqueue([ENTRYPOINT] * size, [BYTES] * size, [0] * size)


async def filled(task: Task) -> Queries:
    queries = await installed(task)
    for size in harness.batches(task.count):
        await enqueue_batch(queries, size)
    return queries


async def enqueue_one(task: Task) -> Measured:
    queries = await installed(task)
    settings = f"Queries.enqueue, {DRIVER}"
    return await harness.one_by_one_async(task, lambda: queries.enqueue(ENTRYPOINT, BYTES), settings)


async def enqueue_many(task: Task) -> Measured:
    queries = await installed(task)
    settings = f"Queries.enqueue with lists of 1,000, {DRIVER}"
    return await harness.one_by_one_async(task, lambda: enqueue_batch(queries), settings, worth=BATCH)


async def producers_100(task: Task) -> Measured:
    await installed(task)
    queries = Queries.from_asyncpg_pool(await asyncpg.create_pool(task.dsn, min_size=POOL, max_size=POOL))
    settings = f"Queries.enqueue, {DRIVER}, pool of {POOL}"
    return await harness.by_producers(task, lambda: queries.enqueue(ENTRYPOINT, BYTES), settings)


async def drain(task: Task) -> Measured:
    await filled(task)
    worker = PgQueuer.from_asyncpg_connection(await asyncpg.connect(task.dsn))

    @worker.entrypoint(ENTRYPOINT)
    async def plain(_job) -> None:
        return

    started = time.perf_counter()
    harness.work(worker.run(batch_size=TAKEN, dequeue_timeout=timedelta(seconds=1)))
    settings = f"one worker, batch_size {TAKEN}, no limit of concurrency, {DRIVER}"
    return await harness.watch_async(task, SUCCESSFUL, settings, started=started)


async def raw_batches(task: Task) -> Measured:
    queries = await filled(task)
    entrypoints = {ENTRYPOINT: EntrypointExecutionParameter(concurrency_limit=0)}
    manager = uuid.uuid4()
    done, started = 0, time.perf_counter()
    while done < task.count and time.perf_counter() - started < task.seconds:
        jobs = await queries.dequeue(
            batch_size=BATCH,
            entrypoints=entrypoints,
            queue_manager_id=manager,
            global_concurrency_limit=None,
            heartbeat_timeout=timedelta(seconds=30),
        )
        await queries.log_jobs([(job, "successful", None) for job in jobs])
        done += len(jobs)
    return Measured(done, time.perf_counter() - started, f"Queries.dequeue of 1,000, Queries.log_jobs; {DRIVER}")


async def latency(task: Task) -> Latencies:
    queries = await installed(task)
    worker = PgQueuer.from_asyncpg_connection(await asyncpg.connect(task.dsn))

    @worker.entrypoint("late")
    async def late(_job) -> None:
        stopwatch.start_of_handler()

    harness.work(worker.run())
    await asyncio.sleep(1)
    settings = f"defaults: batch_size 10, LISTEN/NOTIFY by its trigger; {DRIVER}"
    return await stopwatch.measure_async(task, lambda: queries.enqueue("late", None), settings)


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    harness.main(
        "pgqueuer",
        "pgqueuer",
        {
            "enqueue_one": enqueue_one,
            "enqueue_many": enqueue_many,
            "producers_100": producers_100,
            "drain": drain,
            "raw_batches": raw_batches,
            "latency": latency,
        },
        {"runs_1": PLAIN_QUEUE, "runs_10": PLAIN_QUEUE, "fan_out": "no job waits for others"},
    )
