"""Leases begin where the last ones ended, and yet find what became visible behind that."""

from datetime import UTC, datetime, timedelta

import pytest

import pgqrs
from pgqrs.db.tables import messages
from pgqrs.engine.queues import scan_hints

PAST = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _hints_are_always_good_enough(monkeypatch):
    monkeypatch.setattr(scan_hints, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(scan_hints, "SHARE", 1e9)


@pytest.fixture
async def producer(store):
    await store.create_queue("tasks")
    return await store.producer("tasks")


@pytest.fixture
async def consumer(store, producer):
    return await store.consumer("tasks")


@pytest.fixture
async def ahead(producer, consumer, clock):
    """The consumer has seen newer messages than those that come."""
    await producer.enqueue_many(range(5))
    clock.advance(1)
    await consumer.archive_many(await consumer.dequeue(5))


async def payloads(consumer, count=10):
    return [m.payload for m in await consumer.dequeue(count)]


async def test_a_message_that_is_older_than_the_last_lease_is_found(producer, consumer, ahead):
    await producer.enqueue("old", run_at=PAST)

    assert await payloads(consumer) == ["old"]


async def test_old_ones_and_new_ones_are_found_together(producer, consumer, ahead):
    await producer.enqueue("new")
    await producer.enqueue("old", run_at=PAST)

    assert sorted(await payloads(consumer)) == ["new", "old"]


async def test_priorities_that_come_into_use_are_found_highest_first(producer, consumer, ahead):
    for priority in (-5, -3, 4, 7, 2**31 - 1, -(2**31)):
        await producer.enqueue(priority, priority=priority)

    assert await payloads(consumer) == [2**31 - 1, 7, 4, -3, -5, -(2**31)]


async def test_a_lease_that_ran_out_is_found_again(producer, consumer, clock):
    await producer.enqueue_many(range(3))
    assert len(await consumer.dequeue(3, lease_seconds=10)) == 3
    await producer.enqueue("newer")
    assert await payloads(consumer) == ["newer"]

    clock.advance(10)
    assert await payloads(consumer) == [0, 1, 2]


async def test_what_was_handed_back_is_found_again(producer, consumer, clock):
    await producer.enqueue_many(range(3))
    held = await consumer.dequeue(3)
    clock.advance(1)
    await consumer.release_many(held)

    assert await payloads(consumer) == [0, 1, 2]


async def test_a_paused_queue_gives_nothing(store, producer, consumer, ahead):
    await producer.enqueue("new")
    await pgqrs.admin(store).pause_queue("tasks")

    assert await payloads(consumer) == []


async def test_a_handler_finds_all_of_them(producer, consumer, clock):
    await producer.enqueue_many(range(50))
    seen = set()

    async def handler(message):
        seen.add(message.payload)
        if message.payload in range(50) and message.payload % 10 == 0:
            await producer.enqueue(f"old {message.payload}", run_at=PAST + timedelta(days=message.payload))
            await producer.enqueue(f"high {message.payload}", priority=message.payload)

    assert await consumer.process(handler, concurrency=3, until_idle=True) == 60
    assert len(seen) == 60


@pytest.mark.backends("postgres")
async def test_the_next_lease_begins_where_the_last_one_ended(producer, consumer, monkeypatch):
    read = []
    turn = messages.settle_and_lease

    async def seen(db, source, **given):
        read.append([band for band in given["bands"] if band.lowest == band.highest])
        return await turn(db, source, **given)

    monkeypatch.setattr(messages, "settle_and_lease", seen)
    await producer.enqueue_many(range(4))
    [first] = await consumer.dequeue(1)
    await consumer.dequeue(1)

    assert read[0] == []
    assert read[1] == [(0, 0, first.enqueued_at)]


@pytest.mark.backends("postgres")
async def test_what_is_behind_the_hint_is_not_walked(store, producer, consumer, clock):
    await producer.enqueue("old")
    clock.advance(1)
    await producer.enqueue("new")
    source = messages.Source(consumer._holder.queue_id, 30.0)
    band = messages.PriorityRange(0, 0, clock.now())

    turn = await messages.settle_and_lease(store.database, source, worker_id=1, batch=10, bands=[band])

    assert [lease.payload for lease in turn.leases] == ['"new"']
