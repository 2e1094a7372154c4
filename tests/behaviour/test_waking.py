"""Wake-ups: a waiting consumer hears of work at once, and finds it by polling when it hears nothing."""

import asyncio
import time

import pytest

import pgqrs
from pgqrs import faults


@pytest.fixture
async def ready(live_store):
    await live_store.create_queue("tasks")
    return live_store


async def waiting(consumer, **options):
    """A dequeue that has looked once, found nothing and now waits."""
    looked = asyncio.Event()
    options = {"wait_seconds": 60, **options}
    task: asyncio.Task | None = None

    with faults.injected(faults.at("after", "messages.next_due", looked.set)):
        task = asyncio.create_task(consumer.dequeue(10, **options))
        await asyncio.wait_for(looked.wait(), 10)
    return task


async def test_a_waiting_consumer_gets_a_new_message(ready):
    consumer, producer = await ready.consumer("tasks"), await ready.producer("tasks")
    task = await waiting(consumer)

    await producer.enqueue("hello")

    # Far below the two seconds of the polling beneath: it was the hint.
    assert [m.payload for m in await asyncio.wait_for(task, 1.5)] == ["hello"]


async def test_a_hint_that_comes_while_the_consumer_looks_is_not_lost(ready):
    consumer, producer = await ready.consumer("tasks"), await ready.producer("tasks")

    async def enqueue():
        await producer.enqueue("just now")

    with faults.injected(faults.at("after", "messages.settle_and_lease", enqueue)):
        messages = await asyncio.wait_for(consumer.dequeue(wait_seconds=60), 1.5)

    assert [m.payload for m in messages] == ["just now"]


async def test_waiting_ends_after_the_time_given(ready):
    consumer = await ready.consumer("tasks")

    started = time.monotonic()
    assert await consumer.dequeue(wait_seconds=0.2) == []

    assert time.monotonic() - started >= 0.2


async def test_a_delayed_message_wakes_its_consumer_when_it_is_due(ready):
    consumer, producer = await ready.consumer("tasks"), await ready.producer("tasks")
    await producer.enqueue("soon", delay=0.3)

    messages = await asyncio.wait_for(consumer.dequeue(wait_seconds=60), 1.4)

    assert [m.payload for m in messages] == ["soon"]


async def test_a_released_message_wakes_the_next_consumer(ready):
    one, other, producer = (
        await ready.consumer("tasks"),
        await ready.consumer("tasks"),
        await ready.producer("tasks"),
    )
    await producer.enqueue("x")
    [message] = await one.dequeue()
    task = await waiting(other)

    await message.release()

    assert [m.payload for m in await asyncio.wait_for(task, 1.5)] == ["x"]


async def test_a_resumed_queue_wakes_its_consumers(ready):
    consumer, producer = await ready.consumer("tasks"), await ready.producer("tasks")
    await pgqrs.admin(ready).pause_queue("tasks")
    await producer.enqueue("x")
    task = await waiting(consumer)

    await pgqrs.admin(ready).resume_queue("tasks")

    assert [m.payload for m in await asyncio.wait_for(task, 1.5)] == ["x"]


@pytest.mark.row("B4.4", "B4.24")
async def test_without_any_hint_polling_finds_the_message(ready, monkeypatch):
    monkeypatch.setattr("pgqrs.db.hints.Hints.wake", lambda *_: None)
    consumer, producer = await ready.consumer("tasks"), await ready.producer("tasks")
    task = await waiting(consumer)

    await producer.enqueue("quiet")

    assert [m.payload for m in await asyncio.wait_for(task, 5)] == ["quiet"]


async def test_a_message_enqueued_through_another_store_is_heard_of(ready, connect):
    other = await connect(clock=pgqrs.DatabaseClock())
    consumer = await ready.consumer("tasks")
    task = await waiting(consumer)

    await (await other.producer("tasks")).enqueue("from afar")

    assert [m.payload for m in await asyncio.wait_for(task, 1.5)] == ["from afar"]


async def test_a_hand_set_clock_wakes_those_who_wait_for_time(store, clock):
    await store.create_queue("tasks")
    consumer, producer = await store.consumer("tasks"), await store.producer("tasks")
    await producer.enqueue("tomorrow", delay=86400)
    task = await waiting(consumer)

    clock.advance(days=1)

    assert [m.payload for m in await asyncio.wait_for(task, 1.5)] == ["tomorrow"]


async def test_an_idle_consumer_asks_at_most_once_a_second(ready):
    consumer = await ready.consumer("tasks")
    # Whoever begins to listen looks once more: not when a busy machine is late with that, but before it counts.
    assert await consumer.dequeue(wait_seconds=2) == []

    with faults.recorded() as points:
        assert await consumer.dequeue(wait_seconds=6) == []

    statements = [point.name for point in points if point.phase == "sql"]
    assert len(statements) <= 6, statements


async def test_iteration_hands_out_messages_as_they_come(ready):
    producer = await ready.producer("tasks")
    await producer.enqueue_many(range(3))

    got = []
    async for message in ready.consume("tasks", batch_size=2):
        got.append(message.payload)
        await message.archive()
        if message.payload == 2:
            await producer.enqueue(3)
        if message.payload == 3:
            break

    assert got == [0, 1, 2, 3]
    assert (await pgqrs.admin(ready).queue_metrics("tasks")).archived == 4


async def test_leaving_an_iteration_hands_back_what_was_fetched_ahead(store):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many(range(5))

    messages = store.consume("tasks", batch_size=5)
    first = await anext(messages)
    await first.archive()
    await messages.aclose()

    again = await (await store.consumer("tasks")).dequeue(10)
    assert [(m.payload, m.attempts) for m in again] == [(1, 1), (2, 1), (3, 1), (4, 1)]


async def test_a_message_that_waited_behind_slow_ones_is_still_the_consumers(store, clock, monkeypatch):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many(["slow", "next"])
    other = await store.consumer("tasks")
    consumer = await store.consumer("tasks")
    moment = time.monotonic()
    monkeypatch.setattr("pgqrs.api.consumer.time.monotonic", lambda: moment)

    messages = consumer.messages(batch_size=2, lease_seconds=10)
    slow = await anext(messages)
    moment += 8
    clock.advance(8)
    following = await anext(messages)
    clock.advance(9)

    assert [m.payload for m in await other.dequeue(5)] == ["slow"]
    await following.archive()
    with pytest.raises(pgqrs.LeaseLost):
        await slow.archive()
    await messages.aclose()


@pytest.mark.row("B4.25")
async def test_an_idle_worker_asks_at_most_once_a_second(live_store):
    await live_store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx, n: n).create(live_store)
    looked = asyncio.Event()
    with faults.injected(faults.at("after", "messages.next_due", looked.set)):
        polling = asyncio.create_task(worker.poll_forever())
        await looked.wait()

    with faults.recorded() as points:
        await asyncio.wait({polling}, timeout=12)
    worker.stop()
    await polling

    statements = [point.name for point in points if point.phase == "sql"]
    assert 0 < len(statements) <= 12, statements


async def test_a_workflow_at_its_own_limit_does_not_make_its_worker_spin(live_store):
    begun, may_end = asyncio.Event(), asyncio.Event()

    @pgqrs.workflow(name="limits.slow", concurrency=1)
    async def slow(ctx, params):
        begun.set()
        await may_end.wait()

    worker = await pgqrs.worker("w", concurrency=10).workflows({"limits.slow": slow}).create(live_store)
    ids = await slow.trigger_many(range(3)).execute(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    await begun.wait()

    with faults.recorded() as points:
        await asyncio.wait({polling}, timeout=2)
    may_end.set()
    for run_id in ids:
        await (await slow.get_run(run_id, live_store)).result(timeout=10)
    worker.stop()
    await polling

    statements = [point.name for point in points if point.phase == "sql"]
    assert len(statements) <= 12, len(statements)


@pytest.mark.backends("postgres")
async def test_a_run_that_a_long_transaction_holds_does_not_make_its_worker_spin(live_store, config):
    import asyncpg

    @pgqrs.workflow(name="flow")
    async def flow(ctx, params):
        return "done"

    worker = await pgqrs.worker("w").workflows({"flow": flow}).create(live_store)
    run_id = await flow.trigger(1).execute(live_store)
    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    async with connection.transaction():
        await pgqrs.using(connection, schema=config.schema).signal(run_id, "go")
        polling = asyncio.create_task(worker.poll_forever())
        with faults.recorded() as points:
            await asyncio.wait({polling}, timeout=3)
    await connection.close()
    done = await (await flow.get_run(run_id, live_store)).result(timeout=10)
    worker.stop()
    await polling

    statements = [point.name for point in points if point.phase == "sql"]
    assert done == "done"
    assert len(statements) <= 60, len(statements)


@pytest.mark.backends("sqlite")
async def test_an_outage_leaves_no_tasks_behind(live_store):
    def away():
        raise pgqrs.ConnectionFailed("nobody there")

    await live_store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx, n: n).create(live_store)
    looked = asyncio.Event()
    outage = faults.at("before", "claims.claim", away, times=2)
    with faults.injected(outage), faults.injected(faults.at("after", "messages.next_due", looked.set)):
        polling = asyncio.create_task(worker.poll_forever())
        await asyncio.wait_for(looked.wait(), 10)
    left = [task for task in asyncio.all_tasks() if "Event.wait" in repr(task.get_coro())]
    worker.stop()
    await polling

    assert left == []
