"""Throughput of the public API: enqueue one by one and in bulk, dequeue and archive in batches."""

import asyncio
import statistics
import time

import pgqrs
from benchmarks.databases import both

ROUNDS, COUNT, CLIENTS, BATCH = 3, 20_000, 32, 100
PAYLOAD = {"n": 1, "name": "a task", "tags": ["a", "b"]}


async def main() -> None:
    async with both() as stores:
        rates: dict[tuple[str, str], list[float]] = {}
        for store in stores.values():
            await store.create_queue("tasks")
        for _ in range(ROUNDS):
            for name, store in stores.items():
                for what, measure in (
                    ("enqueue, 32 tasks", one_by_one),
                    ("enqueue_many of 1,000", bulk),
                    ("dequeue and archive 100", drain),
                ):
                    rates.setdefault((what, name), []).append(await measure(store))
        for (what, name), values in sorted(rates.items()):
            print(f"{what:<26} {name:<9} {statistics.median(values):>9,.0f} messages/s")


async def one_by_one(store: pgqrs.Store) -> float:
    producer = await store.producer("tasks")

    async def client() -> None:
        for _ in range(COUNT // 4 // CLIENTS):
            await producer.enqueue(PAYLOAD)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return COUNT // 4 / (time.perf_counter() - started)


async def bulk(store: pgqrs.Store) -> float:
    producer = await store.producer("tasks")
    started = time.perf_counter()
    for _ in range(COUNT // 1000):
        await producer.enqueue_many([PAYLOAD] * 1000)
    return COUNT / (time.perf_counter() - started)


async def drain(store: pgqrs.Store) -> float:
    consumer = await store.consumer("tasks")
    done = 0
    started = time.perf_counter()
    while taken := await consumer.dequeue(BATCH):
        done += len(await consumer.archive_many(taken))
    seconds = time.perf_counter() - started
    await consumer.close()
    return done / seconds
