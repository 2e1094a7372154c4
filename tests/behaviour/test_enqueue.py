"""Enqueueing: one, many, later, at a time, with priority; bad input refused before anything is written."""

from datetime import UTC, datetime, timedelta

import pytest

import pgqrs


@pytest.fixture
async def producer(store):
    await store.create_queue("tasks")
    return await store.producer("tasks")


@pytest.fixture
async def consumer(store, producer):
    return await store.consumer("tasks")


async def payloads(consumer, count=100):
    return [m.payload for m in await consumer.dequeue(count)]


async def test_what_goes_in_comes_out(producer, consumer):
    message_id = await producer.enqueue({"n": 1, "tags": ["a", "b"]})

    [message] = await consumer.dequeue()

    assert message.id == message_id
    assert message.payload == {"n": 1, "tags": ["a", "b"]}
    assert message.queue == "tasks"
    assert (message.attempts, message.max_attempts) == (1, 3)


async def test_many_are_stored_in_the_order_given(producer, consumer):
    ids = await producer.enqueue_many(range(50))

    assert ids == sorted(ids)
    assert await payloads(consumer) == list(range(50))


async def test_none_is_as_good_a_number_as_many(producer, consumer):
    assert await producer.enqueue_many([]) == []
    assert await payloads(consumer) == []


async def test_a_delayed_message_is_seen_after_its_delay_and_not_before(producer, consumer, clock):
    await producer.enqueue("later", delay=5)

    clock.advance(4.999)
    assert await payloads(consumer) == []
    clock.advance(0.001)
    assert await payloads(consumer) == ["later"]


async def test_a_delay_may_be_a_timedelta(producer, consumer, clock):
    await producer.enqueue("later", delay=timedelta(minutes=2))

    clock.advance(119)
    assert await payloads(consumer) == []
    clock.advance(1)
    assert await payloads(consumer) == ["later"]


async def test_a_message_for_a_given_time_is_seen_then(producer, consumer, clock):
    await producer.enqueue("at noon", run_at=datetime(2030, 1, 1, 12, tzinfo=UTC))

    clock.advance(hours=11, minutes=59)
    assert await payloads(consumer) == []
    clock.advance(minutes=1)
    assert await payloads(consumer) == ["at noon"]


async def test_the_time_zone_of_a_given_time_counts(producer, consumer, clock):
    await producer.enqueue("early", run_at=datetime.fromisoformat("2030-01-01T02:00:00+02:00"))

    assert await payloads(consumer) == ["early"]


async def test_higher_priority_comes_first_then_age(producer, consumer, clock):
    for name, priority in (("low", -5), ("first", 0), ("high", 7), ("second", 0), ("highest", 2**31 - 1)):
        await producer.enqueue(name, priority=priority)
        clock.advance(1)

    assert await payloads(consumer) == ["highest", "high", "first", "second", "low"]


async def test_age_counts_from_when_a_message_became_visible(producer, consumer, clock):
    await producer.enqueue("delayed", delay=10)
    clock.advance(5)
    await producer.enqueue("at once")
    clock.advance(10)

    assert await payloads(consumer) == ["at once", "delayed"]


@pytest.mark.row("B7.12")
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delay": -1}, "delay must be seconds"),
        ({"delay": float("nan")}, "delay must be seconds"),
        ({"delay": float("inf")}, "delay must be seconds"),
        ({"delay": 10**12}, "delay must be seconds"),
        ({"delay": True}, "delay must be seconds"),
        ({"delay": "5"}, "delay must be seconds"),
        ({"run_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - that is the point
        ({"run_at": "2030-01-01"}, "time zone"),
        ({"run_at": datetime(1, 1, 1, tzinfo=UTC)}, "1970"),
        ({"run_at": datetime(9999, 12, 31, tzinfo=UTC)}, "2970"),
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, "not both"),
        ({"priority": 2**31}, "priority must be"),
        ({"priority": 1.5}, "priority must be"),
        ({"priority": True}, "priority must be"),
        ({"max_attempts": 0}, "max_attempts must be"),
        ({"max_attempts": -1}, "max_attempts must be"),
    ],
)
async def test_a_bad_option_is_refused_and_nothing_is_written(store, producer, options, complaint):
    with pytest.raises(pgqrs.ConfigError, match=complaint):
        await producer.enqueue("x", **options)

    metrics = await pgqrs.admin(store).queue_metrics("tasks")
    assert (metrics.ready, metrics.scheduled) == (0, 0)


async def test_a_value_that_cannot_be_stored_stops_the_whole_call_and_names_its_place(store, producer):
    with pytest.raises(pgqrs.SerializationError) as caught:
        await producer.enqueue_many([{"a": 1}, {"a": [1, float("nan")]}])

    assert caught.value.path == "$.a[1]"
    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == 0


@pytest.mark.row("B7.7")
async def test_a_payload_over_the_limit_is_refused_before_it_is_sent(store, producer):
    limit = store.config.max_payload_bytes
    await producer.enqueue("x" * (limit - 2))

    with pytest.raises(pgqrs.PayloadTooLarge) as caught:
        await producer.enqueue("x" * (limit - 1))

    assert (caught.value.size, caught.value.limit) == (limit + 1, limit)
    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == 1


async def test_too_many_in_one_call_are_refused(producer, monkeypatch):
    monkeypatch.setattr("pgqrs.api.arguments.MOST_PER_CALL", 3)

    await producer.enqueue_many(range(3))
    with pytest.raises(pgqrs.ConfigError, match="from 1 to 3, not 4"):
        await producer.enqueue_many(range(4))


@pytest.mark.row("B5.12")
async def test_a_burst_of_concurrent_producers_loses_and_doubles_nothing(store, producer, consumer):
    import asyncio

    ids = await asyncio.gather(*(producer.enqueue(n) for n in range(200)))

    assert len(set(ids)) == 200
    assert sorted(await payloads(consumer, 300)) == list(range(200))


@pytest.mark.parametrize("one", ["abc", b"abc", {"a": 1}])
async def test_one_payload_is_not_taken_for_many(producer, one):
    with pytest.raises(pgqrs.ConfigError, match="use enqueue"):
        await producer.enqueue_many(one)
