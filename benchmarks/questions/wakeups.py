"""How long after `enqueue` a waiting consumer of the same or of another process has the message."""

import asyncio
import statistics
import time

import pgqrs
from benchmarks.databases import both
from rig import programs

ROUNDS = 60


async def main() -> None:
    async with both() as stores:
        for name, store in stores.items():
            await store.create_queue(programs.QUEUE)
            show(f"{name}, same process", await within(store))
            show(f"{name}, another process", await across(store))


async def within(store: pgqrs.Store) -> list[float]:
    consumer, producer = await store.consumer(programs.QUEUE), await store.producer(programs.QUEUE)
    waits = []
    for _ in range(ROUNDS):
        waiting = asyncio.create_task(consumer.dequeue(wait_seconds=30))
        await asyncio.sleep(0.05)
        sent = time.time()
        await producer.enqueue(sent)
        [message] = await waiting
        waits.append((time.time() - sent) * 1000)
        await message.archive()
    await consumer.close()
    return waits


async def across(store: pgqrs.Store) -> list[float]:
    process = programs.start("receive", store.config)
    if process.stdout is None or process.stdin is None:
        raise RuntimeError("no pipes")
    producer = await store.producer(programs.QUEUE)
    await asyncio.to_thread(process.stdout.readline)
    waits = []
    for n in range(ROUNDS):
        # Long enough for the consumer to have gone to sleep, and never in step with its looking.
        await asyncio.sleep(0.1 + n * 0.0037)
        await producer.enqueue(time.time())
        waits.append(float(await asyncio.to_thread(process.stdout.readline)))
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()
    return waits


def show(what: str, waits: list[float]) -> None:
    print(f"{what:<28} median {statistics.median(waits):6.1f} ms   worst of {len(waits)} {max(waits):6.1f} ms")
