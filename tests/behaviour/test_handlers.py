"""Handlers of plain queues: done is archived, failed comes back, nothing is lost when it stops."""

import asyncio
import threading
from dataclasses import dataclass
from functools import partial

import pytest

import pgqrs
from pgqrs import blocking, faults
from pgqrs.db.queries import Query
from pgqrs.engine.queues import processor
from rig.late_names import late_names, written


@dataclass
class Invoice:
    number: int


@pytest.fixture
async def producer(store):
    await store.create_queue("tasks")
    return await store.producer("tasks")


@pytest.fixture
async def consumer(store, producer):
    return await store.consumer("tasks")


@pytest.fixture
async def metrics(store, producer):
    return lambda: pgqrs.admin(store).queue_metrics("tasks")


async def steal(store):
    """Every lease passes to somebody else."""
    taken = "update pgqrs_messages set lease_token = lease_token + 1 where leased_by is not null"
    await store.database.execute(Query("steal", taken))


async def nothing(message):
    pass


def failing(error):
    async def handler(message):
        raise error

    return handler


async def test_every_message_is_given_to_the_handler_once_and_archived(producer, consumer, metrics):
    await producer.enqueue_many(range(1_500))
    seen = []

    async def handler(message):
        seen.append(message.payload)

    assert await consumer.process(handler, until_idle=True) == 1_500
    assert sorted(seen) == list(range(1_500))
    found = await metrics()
    assert (found.ready, found.leased, found.dead, found.archived) == (0, 0, 0, 1_500)


async def test_messages_that_are_done_can_be_deleted_instead(producer, consumer, metrics):
    await producer.enqueue_many(range(20))

    await consumer.process(nothing, keep=False, until_idle=True)

    found = await metrics()
    assert (found.ready, found.leased, found.archived) == (0, 0, 0)


async def test_higher_priorities_come_first(producer, consumer):
    for priority in (1, 9, 5):
        await producer.enqueue(priority, priority=priority)
    seen = []

    async def handler(message):
        seen.append(message.payload)

    await consumer.process(handler, concurrency=1, until_idle=True)

    assert seen == [9, 5, 1]


async def test_no_more_are_in_work_than_the_concurrency_says(producer, consumer):
    await producer.enqueue_many(range(30))
    now, most = 0, 0

    async def handler(message):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    await consumer.process(handler, concurrency=4, until_idle=True)

    assert most == 4


async def test_plain_functions_run_in_threads_and_their_verbs_need_no_await(producer, consumer, metrics):
    await producer.enqueue_many(["keep", "drop"])
    seen = set()

    def handler(message):
        seen.add((message.payload, threading.current_thread() is threading.main_thread()))
        if message.payload == "drop":
            message.delete()

    assert await consumer.process(handler, until_idle=True) == 2
    assert seen == {("keep", False), ("drop", False)}
    assert (await metrics()).archived == 1


@pytest.mark.parametrize("plain", [False, True])
async def test_a_parameter_of_another_type_gets_the_payload(producer, consumer, plain):
    await producer.enqueue(Invoice(7))
    seen = []

    async def awaited(invoice: Invoice):
        seen.append(invoice)

    def threaded(invoice: Invoice):
        seen.append(invoice)

    await consumer.process(threaded if plain else awaited, until_idle=True)

    assert seen == [Invoice(7)]


@late_names
async def test_a_parameter_whose_type_only_type_checkers_know_gets_the_message(head, producer, consumer):
    await producer.enqueue("x")
    seen = []
    handler = written(head, "async def handler(it: Gone) -> None: seen.append(it.payload)", seen=seen)

    await consumer.process(handler, until_idle=True)

    assert seen == ["x"]


async def test_a_parameter_annotated_as_a_message_gets_the_message(producer, consumer):
    await producer.enqueue("x")
    seen = []

    async def handler(seen: list, message: pgqrs.Message):
        seen.append((message.payload, message.attempts))

    await consumer.process(partial(handler, seen), until_idle=True)

    assert seen == [("x", 1)]


async def test_a_payload_that_does_not_fit_the_type_is_a_failure_of_that_message_alone(producer, consumer, metrics):
    await producer.enqueue_many([{"nothing": 1}, {"number": 2}])
    seen = []

    async def handler(invoice: Invoice):
        seen.append(invoice.number)

    await consumer.process(handler, until_idle=True)

    assert seen == [2]
    assert (await metrics()).scheduled == 1


async def test_a_failed_message_comes_back_after_its_backoff_and_counts_an_attempt(
    producer, consumer, metrics, clock
):
    await producer.enqueue("x")
    seen = []

    async def handler(message):
        seen.append(message.attempts)
        raise OSError("the mail server is away")

    policy = pgqrs.RetryPolicy(base=10, jitter=0)
    await consumer.process(handler, retry=policy, until_idle=True)
    clock.advance(9.9)
    await consumer.process(handler, retry=policy, until_idle=True)

    assert seen == [1]
    clock.advance(0.1)
    await consumer.process(handler, retry=policy, until_idle=True)
    assert seen == [1, 2]
    assert ((await metrics()).scheduled, (await metrics()).dead) == (1, 0)


async def test_a_transient_error_says_itself_when_to_try_again(producer, consumer, clock):
    await producer.enqueue("x")
    await consumer.process(failing(pgqrs.TransientError("busy", retry_after=100)), until_idle=True)

    clock.advance(99)
    assert await consumer.dequeue() == []
    clock.advance(1)
    assert [m.attempts for m in await consumer.dequeue()] == [2]


async def test_after_its_last_attempt_a_message_is_a_dead_letter_at_once(store, producer, consumer):
    await producer.enqueue("x", max_attempts=1)

    await consumer.process(failing(ValueError("bad")), until_idle=True)

    [letter] = await pgqrs.admin(store).dead_letters("tasks")
    assert (letter.payload, letter.attempts) == ("x", 1)


@pytest.mark.parametrize(
    ("error", "policy"),
    [
        (pgqrs.PermanentError("no such customer"), None),
        (KeyError("customer"), pgqrs.RetryPolicy(give_up_on=(KeyError,))),
        (KeyError("customer"), pgqrs.RetryPolicy(max_attempts=1)),
    ],
)
async def test_what_is_no_use_to_try_again_is_a_dead_letter_at_once(store, producer, consumer, error, policy):
    message_id = await producer.enqueue("x", max_attempts=5)

    await consumer.process(failing(error), retry=policy, until_idle=True)

    admin = pgqrs.admin(store)
    assert [letter.id for letter in await admin.dead_letters("tasks")] == [message_id]
    await admin.replay("tasks")
    assert [m.attempts for m in await consumer.dequeue()] == [1]


async def test_what_the_handler_settled_itself_is_left_alone(producer, consumer, metrics, clock, caplog):
    await producer.enqueue_many(["archive", "delete", "release", "release and raise"])

    async def handler(message):
        if message.payload in ("archive", "delete"):
            await getattr(message, message.payload)()
        else:
            await message.release(delay=100)
        if message.payload == "release and raise":
            raise OSError

    await consumer.process(handler, until_idle=True)

    found = await metrics()
    assert (found.archived, found.scheduled, found.ready, found.leased) == (1, 2, 0, 0)
    assert "run out" not in caplog.text
    clock.advance(100)
    assert [m.attempts for m in await consumer.dequeue(5)] == [1, 1]


async def test_what_a_handler_enqueues_is_handled_before_it_is_idle(producer, consumer):
    await producer.enqueue(3)
    seen = []

    async def handler(message):
        seen.append(message.payload)
        if message.payload:
            await producer.enqueue(message.payload - 1)

    assert await consumer.process(handler, until_idle=True) == 4
    assert seen == [3, 2, 1, 0]


async def test_a_waiting_handler_hears_of_new_messages(live_store):
    await live_store.create_queue("tasks")
    producer, consumer = await live_store.producer("tasks"), await live_store.consumer("tasks")
    seen = asyncio.Queue()

    async def handler(message):
        await seen.put(message.payload)

    working = asyncio.create_task(consumer.process(handler))
    for number in range(3):
        await producer.enqueue(number)
        async with asyncio.timeout(30):
            assert await seen.get() == number
    await consumer.close()

    assert await working == 3


async def test_a_closed_consumer_lets_its_handlers_finish_and_hands_the_others_back(
    store, producer, consumer, metrics
):
    await producer.enqueue_many(range(50))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(message):
        begun.set()
        await go_on.wait()

    working = asyncio.create_task(consumer.process(handler, concurrency=5))
    await begun.wait()
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing

    assert await working == 5
    found = await metrics()
    assert (found.archived, found.leased, found.ready) == (5, 0, 45)
    other = await store.consumer("tasks")
    assert {m.attempts for m in await other.dequeue(50)} == {1}


async def test_a_handler_that_does_not_end_in_time_is_cancelled_and_its_message_handed_back(
    store, producer, consumer
):
    await producer.enqueue("x")
    begun = asyncio.Event()

    async def handler(message):
        begun.set()
        await asyncio.Event().wait()

    working = asyncio.create_task(consumer.process(handler, grace_seconds=0))
    await begun.wait()
    await consumer.close()

    assert await working == 0
    other = await store.consumer("tasks")
    assert [m.attempts for m in await other.dequeue()] == [1]


async def test_a_cancelled_process_hands_back_what_is_not_done_and_keeps_what_is(store, producer, consumer, metrics):
    await producer.enqueue_many(range(30))
    stuck = asyncio.Event()

    async def handler(message):
        if message.payload == 10:
            stuck.set()
            await asyncio.Event().wait()

    working = asyncio.create_task(consumer.process(handler, concurrency=1))
    await stuck.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    found = await metrics()
    assert (found.archived, found.leased, found.ready) == (10, 0, 20)
    assert {m.attempts for m in await consumer.dequeue(50)} == {1}


async def test_a_handler_may_close_its_consumer(producer, consumer, metrics):
    await producer.enqueue_many(range(3))

    async def handler(message):
        await consumer.close()

    async with asyncio.timeout(30):
        await consumer.process(handler, concurrency=1, grace_seconds=0.5)

    assert (await metrics()).leased == 0


async def test_a_message_that_waited_too_long_and_was_taken_by_others_is_not_handled_here(store, producer, consumer):
    await producer.enqueue_many(range(200))
    seen = []
    stolen = set()

    async def handler(message):
        seen.append(message.id)
        held = consumer._holder._held
        ahead = held.keys() - set(seen)
        if ahead and not stolen:
            # What was leased ahead is too old by now, and somebody else has it.
            stolen.update(ahead)
            await steal(store)
            held.update({message_id: (token, 0.0) for message_id, (token, _) in held.items()})

    await consumer.process(handler, concurrency=1, until_idle=True)

    assert stolen
    assert stolen.isdisjoint(seen)


@pytest.mark.parametrize("kind", ["blocks the loop", "waits", "plain"])
async def test_a_slow_handler_keeps_its_lease(live_store, kind):
    await live_store.create_queue("tasks")
    await (await live_store.producer("tasks")).enqueue("x")
    consumer, other = await live_store.consumer("tasks"), await live_store.consumer("tasks")
    stolen, renewals, outlived = [], [], threading.Event()

    def count(point):
        # They are a third of a lease apart: after the fourth the lease that it began with is over.
        if point == ("after", "messages.renew"):
            renewals.append(point)
            if len(renewals) == 4:
                outlived.set()

    async def blocks(message):
        assert outlived.wait(20)
        stolen.extend(await other.dequeue())

    async def waits(message):
        assert await asyncio.to_thread(outlived.wait, 20)
        stolen.extend(await other.dequeue())

    def plain(message):
        assert outlived.wait(20)

    handler = {"blocks the loop": blocks, "waits": waits, "plain": plain}[kind]
    with faults.injected(count):
        assert await consumer.process(handler, lease_seconds=1, until_idle=True) == 1

    assert stolen == []
    found = await pgqrs.admin(live_store).queue_metrics("tasks")
    assert (found.archived, found.leased, found.ready) == (1, 0, 0)


async def test_what_was_done_under_a_lost_lease_is_not_archived_and_said(store, producer, consumer, caplog):
    await producer.enqueue("x")

    async def handler(message):
        await steal(store)

    await consumer.process(handler, until_idle=True)

    found = await pgqrs.admin(store).queue_metrics("tasks")
    assert (found.archived, found.leased) == (0, 1)
    assert "leases had run out" in caplog.text


async def test_a_database_that_is_away_for_a_while_loses_nothing(producer, consumer, metrics, monkeypatch):
    await producer.enqueue_many(range(20))
    monkeypatch.setattr(processor, "AWAY_SECONDS", 0.0)
    broken = []

    def fail_after_the_first():
        broken.append(1)
        if len(broken) > 1:
            raise pgqrs.ConnectionFailed("away")

    async def handler(message):
        if message.payload == 19:
            stopping.append(asyncio.ensure_future(consumer.close()))

    stopping = []
    with faults.injected(faults.at("before", "messages.settle_and_lease", fail_after_the_first, times=3)):
        await consumer.process(handler, concurrency=2)

    assert len(broken) == 3
    assert (await metrics()).archived == 20


async def test_a_paused_queue_is_idle(store, producer, consumer):
    await producer.enqueue("x")
    await pgqrs.admin(store).pause_queue("tasks")

    assert await consumer.process(nothing, until_idle=True) == 0


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"lease_seconds": 0.5}, "lease_seconds"),
        ({"grace_seconds": -1}, "grace_seconds"),
        ({"retry": 3}, "retry"),
    ],
)
async def test_wrong_settings_are_refused(consumer, wrong, name):
    with pytest.raises(pgqrs.ConfigError, match=name):
        await consumer.process(nothing, until_idle=True, **wrong)


@pytest.mark.parametrize("wrong", [None, "handler", lambda: None, lambda a, b: None])
async def test_a_handler_that_cannot_be_called_with_a_message_is_refused(consumer, wrong):
    with pytest.raises(pgqrs.ConfigError, match="handler"):
        await consumer.process(wrong, until_idle=True)


async def test_a_closed_consumer_handles_nothing(consumer):
    await consumer.close()

    with pytest.raises(pgqrs.ConfigError, match="closed"):
        await consumer.process(nothing)


def test_plain_programs_have_it_too(config):
    seen = []
    with blocking.connect(config.dsn, schema=config.schema, install=True) as store:
        store.create_queue("tasks")
        store.producer("tasks").enqueue_many([1, 2, 3])
        with store.consumer("tasks") as consumer:
            assert consumer.process(lambda message: seen.append(message.payload), until_idle=True) == 3

    assert sorted(seen) == [1, 2, 3]


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("name", ["archive_messages", "settle_and_lease_in_bands"])
async def test_of_two_round_trips_side_by_side_either_may_fail(producer, consumer, metrics, monkeypatch, name):
    """Much is archived beside the next lease: what one of them could not do is done later, by this one or the next."""
    monkeypatch.setattr(processor, "MOST_AHEAD", 50)
    await producer.enqueue_many(range(1_000))
    handled = []

    async def handler(message):
        handled.append(message.payload)

    asked = []

    def fail_the_second(point):
        asked.append(point)
        if asked.count(("sql", name)) == 2 and point == ("sql", name):
            raise pgqrs.PgqrsError("not now")

    process = partial(consumer.process, handler, concurrency=200, until_idle=True)
    with faults.injected(fail_the_second), pytest.raises(pgqrs.PgqrsError, match="not now"):
        await process()
    assert ("sql", "archive_messages") in asked
    before = await metrics()
    assert before.archived == len(handled) < 1_000
    assert before.leased == 0
    await process()

    assert (await metrics()).archived == 1_000
    assert sorted(handled) == list(range(1_000))
