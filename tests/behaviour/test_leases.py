"""Leases: redelivery by itself, and fences that a stale holder cannot pass."""

import asyncio

import pytest

import pgqrs

VERBS = {
    "archive": lambda consumer, m: consumer.archive(m),
    "delete": lambda consumer, m: consumer.delete(m),
    "extend": lambda consumer, m: consumer.extend(m, 30),
    "release": lambda consumer, m: consumer.release(m),
}
MANY = {
    "archive": lambda consumer, m: consumer.archive_many(m),
    "delete": lambda consumer, m: consumer.delete_many(m),
    "extend": lambda consumer, m: consumer.extend_many(m, 30),
    "release": lambda consumer, m: consumer.release_many(m),
}


@pytest.fixture
async def producer(store):
    await store.create_queue("tasks")
    return await store.producer("tasks")


@pytest.fixture
async def alice(store, producer):
    return await store.consumer("tasks", name="alice")


@pytest.fixture
async def bob(store, producer):
    return await store.consumer("tasks", name="bob")


async def state(store):
    """Everything that can be seen of the queue."""
    admin = pgqrs.admin(store)
    return await admin.queue_metrics("tasks"), [w.leased for w in await admin.workers("tasks")]


async def test_a_leased_message_is_nobody_elses(producer, alice, bob):
    await producer.enqueue_many(range(5))

    mine = await alice.dequeue(3)
    yours = await bob.dequeue(10)

    assert [m.payload for m in mine] == [0, 1, 2]
    assert [m.payload for m in yours] == [3, 4]
    assert await alice.dequeue() == []


async def test_a_message_comes_back_when_its_lease_ends(producer, alice, bob, clock):
    await producer.enqueue("x")
    await alice.dequeue(lease_seconds=10)

    clock.advance(9.9)
    assert await bob.dequeue() == []
    clock.advance(0.1)
    [again] = await bob.dequeue()

    assert (again.payload, again.attempts) == ("x", 2)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_stale_holder_changes_nothing(store, producer, alice, bob, clock, verb):
    await producer.enqueue("x")
    [stale] = await alice.dequeue(lease_seconds=10)
    clock.advance(10)
    [held] = await bob.dequeue(lease_seconds=100)
    before = await state(store)

    with pytest.raises(pgqrs.LeaseLost) as caught:
        await VERBS[verb](alice, stale)
    with pytest.raises(pgqrs.LeaseLost):
        await VERBS[verb](alice, stale.id)

    assert caught.value.message_id == stale.id
    assert await state(store) == before
    await held.archive()


@pytest.mark.row("B1.5")
async def test_the_same_consumer_that_takes_its_own_message_again_is_fenced_from_its_first_try(
    producer, alice, clock
):
    await producer.enqueue("x")
    [first] = await alice.dequeue(lease_seconds=10)
    clock.advance(10)
    [second] = await alice.dequeue(lease_seconds=10)

    with pytest.raises(pgqrs.LeaseLost):
        await first.archive()
    await second.archive()

    assert second.lease_token > first.lease_token


@pytest.mark.parametrize("verb", MANY)
async def test_many_at_once_tell_which_were_changed(producer, alice, bob, clock, verb):
    await producer.enqueue_many(range(3))
    first, second, third = await alice.dequeue(3, lease_seconds=10)
    await third.extend(1000)
    clock.advance(10)
    [taken] = await bob.dequeue(1, lease_seconds=100)

    changed = await MANY[verb](alice, [first, second.id, third])

    # The first is Bob's by now; the second ran out, but nobody took it.
    assert taken.id == first.id
    assert changed == [second.id, third.id]


@pytest.mark.parametrize("verb", MANY)
async def test_many_of_nothing_is_nothing(alice, verb):
    assert await MANY[verb](alice, []) == []


@pytest.mark.parametrize("verb", VERBS)
async def test_a_message_that_was_never_held_is_refused(producer, alice, bob, verb):
    await producer.enqueue("x")
    [held] = await bob.dequeue()

    with pytest.raises(pgqrs.LeaseLost, match="not held by this consumer"):
        await VERBS[verb](alice, held.id)
    with pytest.raises(pgqrs.LeaseLost):
        await VERBS[verb](alice, 987654)


@pytest.mark.parametrize("verb", VERBS)
async def test_what_was_archived_is_settled(producer, alice, verb):
    await producer.enqueue("x")
    [message] = await alice.dequeue()
    await message.archive()

    with pytest.raises(pgqrs.LeaseLost):
        await VERBS[verb](alice, message)


async def test_an_archive_after_the_lease_ended_counts_if_nobody_took_the_message(store, producer, alice, clock):
    await producer.enqueue("x")
    [message] = await alice.dequeue(lease_seconds=10)
    clock.advance(100)

    await message.archive()

    assert (await pgqrs.admin(store).queue_metrics("tasks")).archived == 1


async def test_extending_keeps_the_message(producer, alice, bob, clock):
    await producer.enqueue("x")
    [message] = await alice.dequeue(lease_seconds=10)
    clock.advance(8)
    await message.extend(10)

    clock.advance(9)
    assert await bob.dequeue() == []
    clock.advance(1)
    assert len(await bob.dequeue()) == 1


async def test_a_released_message_is_there_at_once_and_no_attempt_is_counted(producer, alice, bob):
    await producer.enqueue("x", max_attempts=2)
    for _ in range(20):
        [message] = await alice.dequeue()
        await message.release()

    [message] = await bob.dequeue()

    assert message.attempts == 1


async def test_a_released_message_is_not_its_former_holders(producer, alice):
    await producer.enqueue("x")
    [message] = await alice.dequeue()
    await message.release()

    with pytest.raises(pgqrs.LeaseLost):
        await message.archive()
    [again] = await alice.dequeue()
    await again.archive()


async def test_a_message_can_be_released_until_later(producer, alice, clock):
    await producer.enqueue("x")
    [message] = await alice.dequeue()
    await message.release(delay=60)

    clock.advance(59)
    assert await alice.dequeue() == []
    clock.advance(1)
    assert len(await alice.dequeue()) == 1


async def test_a_failure_that_is_released_counts_when_asked_to(producer, alice):
    await producer.enqueue("x")
    [message] = await alice.dequeue()
    await message.release(count_attempt=True)

    [again] = await alice.dequeue()

    assert again.attempts == 2


async def test_closing_a_consumer_hands_back_what_it_holds(producer, alice, bob):
    await producer.enqueue_many(range(3))
    [done, *_] = await alice.dequeue(3)
    await done.archive()

    await alice.close()
    await alice.close()

    assert [(m.payload, m.attempts) for m in await bob.dequeue(5)] == [(1, 1), (2, 1)]
    with pytest.raises(pgqrs.ConfigError, match="closed"):
        await alice.dequeue()


async def test_closing_a_store_hands_back_what_its_consumers_hold(connect, store, producer, bob):
    second = await connect()
    consumer = await second.consumer("tasks")
    await producer.enqueue("x")
    assert await consumer.dequeue()

    await second.close()

    assert [m.payload for m in await bob.dequeue()] == ["x"]


async def test_everything_a_worker_holds_can_be_taken_from_it(store, producer, alice, bob):
    await producer.enqueue_many(range(4))
    held = await alice.dequeue(3)
    await bob.dequeue()

    assert await pgqrs.admin(store).release_worker_messages(alice.worker_id) == 3

    assert await alice.archive_many(held) == []
    assert [(m.payload, m.attempts) for m in await bob.dequeue(5)] == [(0, 1), (1, 1), (2, 1)]


async def test_two_consumers_at_once_never_hold_the_same_message(producer, alice, bob):
    await producer.enqueue_many(range(200))

    async def drain(consumer):
        got = []
        while messages := await consumer.dequeue(7):
            got += [m.payload for m in messages]
        return got

    one, other = await asyncio.gather(drain(alice), drain(bob))

    assert sorted(one + other) == list(range(200))


async def test_a_dequeue_that_is_cancelled_leaves_nothing_leased(store, producer, alice, bob):
    from pgqrs import faults

    await producer.enqueue("x")
    reached = asyncio.Event()
    never = asyncio.Event()

    async def stall():
        reached.set()
        await asyncio.wait_for(never.wait(), 0.2)

    async def dequeue():
        # The lease has committed, its caller does not know yet.
        with faults.injected(faults.at("after", "messages.settle_and_lease", stall)):
            await alice.dequeue()

    task = asyncio.create_task(dequeue())
    await reached.wait()
    task.cancel()
    never.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [m.attempts for m in await bob.dequeue()] == [1]


@pytest.mark.parametrize("batch", [0, -1, 1.5, True, 10**9, "3"])
async def test_a_bad_batch_size_is_refused(alice, batch):
    with pytest.raises(pgqrs.ConfigError, match="batch_size"):
        await alice.dequeue(batch)


@pytest.mark.parametrize("seconds", [0, 0.5, -1, float("nan"), 10**10, "30", True])
async def test_a_bad_lease_is_refused(producer, alice, seconds):
    with pytest.raises(pgqrs.ConfigError, match="lease_seconds"):
        await alice.dequeue(lease_seconds=seconds)


@pytest.mark.row("B7.9")
async def test_a_stored_payload_that_cannot_be_read_hurts_only_itself(store, producer, alice):
    from pgqrs.db.queries import Query

    await producer.enqueue_many(["good", "bad", "good too"])
    broken = Query("break", "update pgqrs_messages set payload = :text where message_id = 2")
    await store.database.execute(broken, text='{"$uuid": "nonsense"}')

    messages = await alice.dequeue(3)

    assert [messages[0].payload, messages[2].payload] == ["good", "good too"]
    with pytest.raises(pgqrs.SerializationError):
        _ = messages[1].payload
    await messages[1].archive()


async def test_a_handler_that_raises_uses_up_its_attempts(store, producer, clock):
    await producer.enqueue("poison", max_attempts=2)

    async def fail():
        async with await store.consumer("tasks") as consumer:
            for message in await consumer.dequeue():
                raise ValueError(message.payload)

    async def fail_in_an_iteration():
        async for message in store.consume("tasks"):
            raise ValueError(message.payload)

    for attempt in (fail, fail_in_an_iteration):
        with pytest.raises(ValueError, match="poison"):
            await attempt()
        # An abandoned generator is closed by the event loop, soon.
        while any(w.status == "READY" for w in await pgqrs.admin(store).workers("tasks")):
            await asyncio.sleep(0)

    assert [letter.payload for letter in await pgqrs.admin(store).dead_letters("tasks")] == ["poison"]


async def test_closing_twice_at_once_waits_for_the_same_end(store, producer, alice, bob):
    await producer.enqueue("x")
    await alice.dequeue()

    await asyncio.gather(alice.close(), alice.close(), store.close())

    with pytest.raises(pgqrs.ConnectionFailed, match="closed"):
        await producer.enqueue("y")


@pytest.mark.parametrize("what", ["9", None, 1.5, True])
async def test_what_is_no_message_is_refused_by_every_verb(alice, what):
    for verb in (*VERBS.values(), lambda consumer, m: consumer.archive_many([m])):
        with pytest.raises(pgqrs.ConfigError, match="a message, or its id"):
            await verb(alice, what)


async def test_settling_a_stale_delivery_does_not_forget_the_newer_lease(producer, alice, clock):
    await producer.enqueue("x")
    [stale] = await alice.dequeue(lease_seconds=10)
    clock.advance(10)
    [fresh] = await alice.dequeue()
    assert await alice.archive_many([stale]) == []

    await alice.archive(fresh.id)
