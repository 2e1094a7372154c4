"""Messages out: through a handler, and in batches by hand."""

from typing import Any

import pgqrs
from benchmarks.scenarios.looking import ARCHIVED, LEFT, Look, expect
from benchmarks.scenarios.place import QUEUE, Place, enqueue

CONCURRENCY, RAW_BATCH = 500, 1_000
SETTINGS = f"consumer.process(handler, concurrency={CONCURRENCY}), one process"


async def handle(_message: pgqrs.Message) -> None:
    """Does nothing."""


async def process(consumer: pgqrs.Consumer) -> None:
    """Everything through the handler, until it is cancelled or nothing is left."""
    await consumer.process(handle, concurrency=CONCURRENCY, until_idle=True)


async def drain(place: Place) -> dict[str, Any]:
    async with place.store() as store:
        await enqueue(store, place.count)
        async with await store.consumer(QUEUE) as consumer:
            seconds = await Look(place, LEFT).seconds(process(consumer), until=0)
    expect(place, ARCHIVED, place.count)
    return {"count": place.count, "seconds": seconds, "rate": place.count / seconds, "settings": SETTINGS}


async def raw_batches(place: Place) -> dict[str, Any]:
    async with place.store() as store:
        await enqueue(store, place.count)
        async with await store.consumer(QUEUE) as consumer:

            async def by_hand() -> None:
                while taken := await consumer.dequeue(RAW_BATCH):
                    await consumer.archive_many(taken)

            seconds = await Look(place, LEFT).seconds(by_hand(), until=0)
    expect(place, ARCHIVED, place.count)
    settings = f"dequeue({RAW_BATCH:,}), archive_many, one after the other"
    return {"count": place.count, "seconds": seconds, "rate": place.count / seconds, "settings": settings}
