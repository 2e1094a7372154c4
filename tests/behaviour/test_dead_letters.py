"""Dead letters: read as often as allowed, never archived; listed, replayable, never silently invisible."""

import pytest

import pgqrs


@pytest.fixture
async def admin(store):
    await store.create_queue("tasks")
    return pgqrs.admin(store)


@pytest.fixture
async def consumer(store, admin):
    return await store.consumer("tasks")


async def let_die(store, consumer, clock, payload, attempts=3):
    """Deliver a message as often as allowed, and never archive it."""
    message_id = await (await store.producer("tasks")).enqueue(payload, max_attempts=attempts, priority=100)
    for attempt in range(1, attempts + 1):
        [message] = await consumer.dequeue(lease_seconds=10)
        assert (message.id, message.attempts) == (message_id, attempt)
        clock.advance(10)
    return message_id


async def test_a_message_is_delivered_max_attempts_times_and_then_listed(store, admin, consumer, clock):
    message_id = await let_die(store, consumer, clock, {"poison": True})

    assert await consumer.dequeue() == []
    [letter] = await admin.dead_letters("tasks")
    assert (letter.id, letter.queue, letter.attempts, letter.max_attempts) == (message_id, "tasks", 3, 3)
    assert letter.payload == {"poison": True}
    assert letter.dead_since == clock.now()


async def test_a_message_in_its_last_lease_is_not_dead_yet(store, admin, consumer):
    await (await store.producer("tasks")).enqueue("x", max_attempts=1)
    [message] = await consumer.dequeue()

    assert await admin.dead_letters("tasks") == []
    await message.archive()
    assert (await admin.queue_metrics("tasks")).archived == 1


@pytest.mark.row("B8.9")
async def test_a_dead_letter_does_not_block_those_behind_it(store, admin, consumer, clock):
    await let_die(store, consumer, clock, "poison")
    await (await store.producer("tasks")).enqueue("fine")

    assert [m.payload for m in await consumer.dequeue(10)] == ["fine"]


async def test_a_replayed_dead_letter_starts_anew(store, admin, consumer, clock):
    message_id = await let_die(store, consumer, clock, "x")

    assert await admin.replay("tasks", [message_id]) == 1

    assert await admin.dead_letters("tasks") == []
    [message] = await consumer.dequeue()
    assert (message.id, message.attempts) == (message_id, 1)
    await message.archive()


async def test_all_dead_letters_can_be_replayed_at_once(store, admin, consumer, clock, monkeypatch):
    monkeypatch.setattr("pgqrs.api.operations.admin.PURGE_BATCH", 2)
    for n in range(5):
        await let_die(store, consumer, clock, n, attempts=1)

    assert await admin.replay("tasks") == 5

    assert sorted(m.payload for m in await consumer.dequeue(10)) == [0, 1, 2, 3, 4]


async def test_only_dead_letters_of_the_queue_are_replayed(store, admin, consumer, clock):
    dead = await let_die(store, consumer, clock, "dead", attempts=1)
    live = await (await store.producer("tasks")).enqueue("live")
    await store.create_queue("other")

    assert await admin.replay("other", [dead]) == 0
    assert await admin.replay("tasks", [live, 987654]) == 0
    assert await admin.replay("tasks", [dead, live]) == 1


async def test_the_former_holder_of_a_replayed_message_is_fenced(store, admin, consumer, clock):
    await (await store.producer("tasks")).enqueue("x", max_attempts=1)
    [stale] = await consumer.dequeue(lease_seconds=10)
    clock.advance(10)
    await admin.replay("tasks")

    with pytest.raises(pgqrs.LeaseLost):
        await stale.archive()


async def test_dead_letters_come_in_pages_oldest_first(store, admin, consumer, clock):
    died = [await let_die(store, consumer, clock, n, attempts=1) for n in range(5)]

    first = await admin.dead_letters("tasks", limit=2)
    second = await admin.dead_letters("tasks", limit=2, after=first[-1])
    third = await admin.dead_letters("tasks", limit=2, after=second[-1])

    assert [letter.id for letter in first + second + third] == died
