"""Messages in: one by one, by the thousand, by a hundred producers of one process."""

import asyncio
import time
from typing import Any

from benchmarks.scenarios.looking import MESSAGES, expect
from benchmarks.scenarios.place import PAYLOAD, QUEUE, Place, enqueue

PRODUCERS = 100


async def enqueue_one(place: Place) -> dict[str, Any]:
    async with place.store() as store:
        producer = await store.producer(QUEUE)
        started = time.perf_counter()
        for _ in range(place.count):
            await producer.enqueue(PAYLOAD)
        seconds = time.perf_counter() - started
    return _figures(place, place.count, seconds, "one task, defaults")


async def enqueue_many(place: Place) -> dict[str, Any]:
    async with place.store() as store:
        started = time.perf_counter()
        await enqueue(store, place.count)
        seconds = time.perf_counter() - started
    return _figures(place, place.count, seconds, "enqueue_many of 1,000, one task, defaults")


async def producers_100(place: Place) -> dict[str, Any]:
    each = max(1, place.count // PRODUCERS)
    async with place.store() as store:
        producer = await store.producer(QUEUE)

        async def produce() -> None:
            for _ in range(each):
                await producer.enqueue(PAYLOAD)

        started = time.perf_counter()
        await asyncio.gather(*(produce() for _ in range(PRODUCERS)))
        seconds = time.perf_counter() - started
    return _figures(place, each * PRODUCERS, seconds, "100 tasks that enqueue one by one, defaults")


def _figures(place: Place, count: int, seconds: float, settings: str) -> dict[str, Any]:
    # Durable when the call returns: the clock stops there, and the database is asked whether it is so.
    expect(place, MESSAGES, count)
    return {"count": count, "seconds": seconds, "rate": count / seconds, "settings": settings}
