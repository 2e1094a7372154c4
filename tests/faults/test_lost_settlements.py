"""PostgreSQL: the replies of leases and archives are lost, and what others did meanwhile is not taken for one's own."""

import pytest

import pgqrs

pytestmark = pytest.mark.backends("postgres")


@pytest.fixture
async def producer(store):
    await store.create_queue("tasks")
    return await store.producer("tasks")


@pytest.mark.parametrize("statement", ["settle_and_lease", "settle_and_lease_in_bands"])
async def test_a_lease_whose_reply_was_lost_is_found_however_it_was_read(store, producer, lose_commit, statement):
    consumer = await store.consumer("tasks")
    if statement == "settle_and_lease_in_bands":
        # Who has leased before begins to read where that lease ended.
        await producer.enqueue("before")
        await consumer.dequeue()
    await producer.enqueue_many([1, 2])

    lose_commit(statement)
    found = await consumer.dequeue(2)

    assert sorted(message.payload for message in found) == [1, 2]


async def test_an_archive_of_the_next_holder_is_not_taken_for_ones_own(store, producer, clock, lose_commit):
    await producer.enqueue("x")
    [stale] = await (await store.consumer("tasks")).dequeue(lease_seconds=10)
    clock.advance(10)
    [held] = await (await store.consumer("tasks")).dequeue()
    await held.archive()

    lose_commit("archive_messages")

    with pytest.raises(pgqrs.LeaseLost):
        await stale.archive()
