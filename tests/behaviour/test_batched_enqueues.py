"""Messages enqueued at the same time go in together; each caller has its own id, and its own error."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.tables import messages


@pytest.fixture
async def producer(store):
    await store.create_queue("tasks")
    return await store.producer("tasks")


@pytest.fixture
def batches(monkeypatch):
    """How many messages each statement carried."""
    sizes = []
    enqueue = messages.enqueue

    async def counted(db, queue_id, new):
        sizes.append(len(new))
        return await enqueue(db, queue_id, new)

    monkeypatch.setattr(messages, "enqueue", counted)
    return sizes


async def stored(store):
    consumer = await store.consumer("tasks")
    return {m.id: m.payload for m in await consumer.dequeue(1_000)}


async def test_each_caller_gets_the_id_of_its_own_message(store, producer, batches):
    ids = await asyncio.gather(*(producer.enqueue(n) for n in range(100)))

    assert await stored(store) == dict(zip(ids, range(100), strict=True))
    assert batches == [1, 99]


async def test_producers_of_one_queue_go_in_together(store, producer, batches):
    producers = [await store.producer("tasks") for _ in range(10)]

    await asyncio.gather(*(each.enqueue(n) for n, each in enumerate(producers)))

    assert batches == [1, 9]


async def test_a_single_message_does_not_wait_for_others(producer, batches):
    for n in range(3):
        await producer.enqueue(n)

    assert batches == [1, 1, 1]


async def test_each_message_keeps_its_own_options(store, producer, clock):
    await asyncio.gather(
        producer.enqueue("low"),
        producer.enqueue("high", priority=9),
        producer.enqueue("later", delay=60),
        producer.enqueue("once", max_attempts=1, priority=-1),
    )
    consumer = await store.consumer("tasks")

    found = await consumer.dequeue(10)

    assert [(m.payload, m.max_attempts) for m in found] == [("high", 3), ("low", 3), ("once", 1)]


async def test_a_poison_message_hurts_only_itself(store, producer, monkeypatch):
    enqueue = messages.enqueue

    async def choosy(db, queue_id, new):
        if any("poison" in each.payload for each in new):
            raise ValueError("poison")
        return await enqueue(db, queue_id, new)

    monkeypatch.setattr(messages, "enqueue", choosy)
    ends = await asyncio.gather(
        *(producer.enqueue(each) for each in ("a", "b", "poison", "c")), return_exceptions=True
    )

    assert isinstance(ends.pop(2), ValueError)
    assert await stored(store) == dict(zip(ends, "abc", strict=True))


async def test_a_cancelled_caller_takes_nothing_from_the_others(store, producer):
    first = asyncio.create_task(producer.enqueue("first"))
    others = [asyncio.create_task(producer.enqueue(n)) for n in range(5)]
    await asyncio.sleep(0)
    first.cancel()
    others[2].cancel()

    ends = await asyncio.gather(*others, return_exceptions=True)

    found = await stored(store)
    assert isinstance(ends.pop(2), asyncio.CancelledError)
    assert [found[message_id] for message_id in ends] == [0, 1, 3, 4]
    assert 2 not in found.values()


async def test_each_caller_is_told_that_the_reply_was_lost(producer):
    calls = []

    def lose_the_second():
        calls.append(1)
        if len(calls) == 2:
            raise pgqrs.ConnectionFailed("the reply was lost", ambiguous=True)

    with faults.injected(faults.at("after", "messages.enqueue", lose_the_second, times=2)):
        ends = await asyncio.gather(*(producer.enqueue(n) for n in range(4)), return_exceptions=True)

    assert isinstance(ends[0], int)
    assert [end.ambiguous for end in ends[1:]] == [True] * 3
    assert len({id(end) for end in ends}) == 4


async def test_after_a_failure_the_next_ones_go_in(producer):
    def refuse():
        raise ValueError("no")

    with faults.injected(faults.at("before", "messages.enqueue", refuse)):
        ends = await asyncio.gather(*(producer.enqueue(n) for n in range(3)), return_exceptions=True)

    assert [isinstance(end, ValueError) for end in ends] == [True, False, False]
    assert isinstance(await producer.enqueue("next"), int)


async def test_a_queue_that_was_made_anew_is_found_by_all(store, producer):
    await pgqrs.admin(store).delete_queue("tasks")
    await store.create_queue("tasks")

    ids = await asyncio.gather(*(producer.enqueue(n) for n in range(5)))

    assert await stored(store) == dict(zip(ids, range(5), strict=True))


async def test_without_the_queue_each_caller_is_told(store, producer):
    await pgqrs.admin(store).delete_queue("tasks")

    ends = await asyncio.gather(*(producer.enqueue(n) for n in range(3)), return_exceptions=True)

    assert [type(end) for end in ends] == [pgqrs.QueueNotFound] * 3
