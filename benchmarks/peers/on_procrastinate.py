"""Procrastinate: jobs deferred, and one worker with many jobs at a time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import harness
import procrastinate
from harness import BATCH, PAYLOAD, PLAIN_QUEUE, Latencies, Measured, Task

CONCURRENCY, POOL = 20, 20
SUCCEEDED = "select count(*) from procrastinate_jobs where status = 'succeeded'"
stopwatch = harness.Stopwatch()


@asynccontextmanager
async def opened(task: Task) -> AsyncIterator[procrastinate.App]:
    connector = procrastinate.PsycopgConnector(conninfo=task.dsn, min_size=POOL, max_size=POOL)
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield app


def plain_task(app: procrastinate.App):
    @app.task(name="plain")
    async def plain(payload) -> None:  # noqa: ARG001 - the name of what is deferred
        return

    return plain


async def enqueue_one(task: Task) -> Measured:
    async with opened(task) as app:
        plain = plain_task(app)
        return await harness.one_by_one_async(task, lambda: plain.defer_async(payload=PAYLOAD), "Task.defer_async")


async def enqueue_many(task: Task) -> Measured:
    async with opened(task) as app:
        plain, jobs = plain_task(app), [{"payload": PAYLOAD}] * BATCH
        return await harness.one_by_one_async(
            task, lambda: plain.batch_defer_async(*jobs), "Task.batch_defer_async of 1,000", worth=BATCH
        )


async def producers_100(task: Task) -> Measured:
    async with opened(task) as app:
        plain = plain_task(app)
        settings = f"Task.defer_async, pool of {POOL}"
        return await harness.by_producers(task, lambda: plain.defer_async(payload=PAYLOAD), settings)


async def drain(task: Task) -> Measured:
    async with opened(task) as app:
        plain = plain_task(app)
        for size in harness.batches(task.count):
            await plain.batch_defer_async(*[{"payload": PAYLOAD}] * size)
        started = time.perf_counter()
        harness.work(app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False))
        settings = f"one worker, concurrency {CONCURRENCY}, pool of {POOL}"
        return await harness.watch_async(task, SUCCEEDED, settings, started=started)


async def latency(task: Task) -> Latencies:
    async with opened(task) as app:

        @app.task(name="late")
        async def late() -> None:
            stopwatch.start_of_handler()

        harness.work(app.run_worker_async(install_signal_handlers=False))
        await asyncio.sleep(1)
        settings = "defaults: concurrency 1, LISTEN/NOTIFY"
        return await stopwatch.measure_async(task, late.defer_async, settings)


if __name__ == "__main__":
    harness.main(
        "procrastinate",
        "procrastinate",
        {
            "enqueue_one": enqueue_one,
            "enqueue_many": enqueue_many,
            "producers_100": producers_100,
            "drain": drain,
            "latency": latency,
        },
        {
            "raw_batches": "jobs are fetched and finished one by one",
            "runs_1": PLAIN_QUEUE,
            "runs_10": PLAIN_QUEUE,
            "fan_out": "no job waits for others",
        },
    )
