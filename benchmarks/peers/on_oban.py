"""Oban for Python (the open-source one): jobs fetched in batches, acknowledged one statement each."""

import asyncio
import time

import harness
import uvloop
from harness import BATCH, PAYLOAD, PLAIN_QUEUE, Latencies, Measured, Task
from oban import Oban, worker
from oban.schema import install

LIMIT, DEBOUNCE, POOL = 500, 0.005, 20
COMPLETED = "select count(*) from oban_jobs where state = 'completed'"
stopwatch = harness.Stopwatch()


@worker(queue="default")
class Plain:
    async def process(self, _job) -> None:
        return


@worker(queue="default")
class Late:
    async def process(self, _job) -> None:
        stopwatch.start_of_handler()


async def pooled(task: Task):
    pool = await Oban.create_pool(task.dsn, min_size=POOL, max_size=POOL)
    await install(pool)
    return pool


async def enqueue_one(task: Task) -> Measured:
    async with Oban(pool=await pooled(task)) as oban:
        return await harness.one_by_one_async(task, lambda: oban.enqueue(Plain.new(PAYLOAD)), "Oban.enqueue, uvloop")


async def enqueue_many(task: Task) -> Measured:
    async with Oban(pool=await pooled(task)) as oban:
        return await harness.one_by_one_async(
            task, lambda: enqueue_batch(oban), "Oban.enqueue_many of 1,000, uvloop", worth=BATCH
        )


async def enqueue_batch(oban: Oban, size: int = BATCH) -> None:
    await oban.enqueue_many([Plain.new(PAYLOAD) for _ in range(size)])


async def producers_100(task: Task) -> Measured:
    async with Oban(pool=await pooled(task)) as oban:
        settings = f"Oban.enqueue, uvloop, pool of {POOL}"
        return await harness.by_producers(task, lambda: oban.enqueue(Plain.new(PAYLOAD)), settings)


async def drain(task: Task) -> Measured:
    pool = await pooled(task)
    async with Oban(pool=pool, name="producer") as oban:
        for size in harness.batches(task.count):
            await enqueue_batch(oban, size)
    started = time.perf_counter()
    await Oban(pool=pool, queues={"default": {"limit": LIMIT, "debounce_interval": DEBOUNCE}}).start()
    settings = f"one queue, limit {LIMIT}, debounce_interval {DEBOUNCE}, pool of {POOL}, uvloop"
    return await harness.watch_async(task, COMPLETED, settings, started=started)


async def latency(task: Task) -> Latencies:
    async with Oban(pool=await pooled(task), queues={"default": 10}) as oban:
        await asyncio.sleep(1)
        settings = "defaults: one queue, limit 10, LISTEN/NOTIFY; uvloop"
        return await stopwatch.measure_async(task, lambda: oban.enqueue(Late.new({})), settings)


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    harness.main(
        "oban",
        "oban",
        {
            "enqueue_one": enqueue_one,
            "enqueue_many": enqueue_many,
            "producers_100": producers_100,
            "drain": drain,
            "latency": latency,
        },
        {
            "raw_batches": "jobs are fetched in batches, but acknowledged one by one",
            "runs_1": PLAIN_QUEUE,
            "runs_10": PLAIN_QUEUE,
            "fan_out": "workflows are in its commercial edition",
        },
    )
