"""Queues: made, paused, measured, purged, deleted."""

import pytest

import pgqrs


async def test_creating_a_queue_twice_keeps_what_is_in_it(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    await producer.enqueue(1)

    await store.create_queue("tasks")

    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == 1


async def test_a_queue_that_is_not_there_is_named_with_the_nearest_that_is(store):
    await store.create_queue("thumbnails")

    with pytest.raises(pgqrs.QueueNotFound) as caught:
        await store.producer("thumbnial")

    assert caught.value.name == "thumbnial"
    assert caught.value.suggestion == "thumbnails"
    assert "store.create_queue('thumbnial')" in str(caught.value)


@pytest.mark.parametrize("verb", ["queue_metrics", "pause_queue", "resume_queue", "purge", "delete_queue", "replay"])
async def test_every_verb_refuses_a_queue_that_is_not_there(store, verb):
    with pytest.raises(pgqrs.QueueNotFound, match="nowhere"):
        await getattr(pgqrs.admin(store), verb)("nowhere")


async def test_queues_are_listed_by_name(store):
    for name in ("b", "a", "c"):
        await store.create_queue(name)

    assert await pgqrs.admin(store).queues() == ["a", "b", "c"]


async def test_a_paused_queue_takes_messages_and_gives_none(store):
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await pgqrs.admin(store).pause_queue("tasks")
    await producer.enqueue("later")

    assert await consumer.dequeue() == []
    assert (await pgqrs.admin(store).queue_metrics("tasks")).paused

    await pgqrs.admin(store).resume_queue("tasks")

    assert [m.payload for m in await consumer.dequeue()] == ["later"]


async def test_what_was_leased_before_the_pause_can_be_archived_during_it(store):
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await producer.enqueue("now")
    [message] = await consumer.dequeue()
    await pgqrs.admin(store).pause_queue("tasks")

    await message.archive()

    assert (await pgqrs.admin(store).queue_metrics("tasks")).archived == 1


async def test_metrics_tell_what_each_message_is_doing(store, clock):
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await producer.enqueue("dies", max_attempts=1, priority=9)
    await consumer.dequeue(lease_seconds=10)
    clock.advance(20)
    await producer.enqueue("done", priority=5)
    await (await consumer.dequeue())[0].archive()
    await producer.enqueue("held", priority=5)
    await consumer.dequeue()
    await producer.enqueue("later", delay=60)
    await producer.enqueue_many(["ready", "ready too"])
    clock.advance(7)

    metrics = await pgqrs.admin(store).queue_metrics("tasks")

    assert (metrics.ready, metrics.scheduled, metrics.leased, metrics.dead, metrics.archived) == (2, 1, 1, 1, 1)
    assert metrics.oldest_ready_age_seconds == pytest.approx(7)


async def test_metrics_of_an_empty_queue_are_zero(store):
    await store.create_queue("tasks")

    metrics = await pgqrs.admin(store).queue_metrics("tasks")

    assert metrics == pgqrs.QueueMetrics("tasks", False, 0, 0, 0, 0, 0, None)  # noqa: FBT003


async def test_metrics_count_only_their_own_queue(store):
    for queue in ("a", "b"):
        await store.create_queue(queue)
        await (await store.producer(queue)).enqueue_many(range(3))

    assert (await pgqrs.admin(store).queue_metrics("a")).ready == 3


async def test_purge_removes_what_is_live_and_keeps_the_archive(store, monkeypatch):
    monkeypatch.setattr("pgqrs.api.operations.admin.PURGE_BATCH", 2)
    await store.create_queue("tasks")
    await store.create_queue("other")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await (await store.producer("other")).enqueue("stays")
    await producer.enqueue_many(range(7))
    await (await consumer.dequeue())[0].archive()
    await consumer.dequeue()

    assert await pgqrs.admin(store).purge("tasks") == 6

    metrics = await pgqrs.admin(store).queue_metrics("tasks")
    assert (metrics.ready, metrics.leased, metrics.archived) == (0, 0, 1)
    assert (await pgqrs.admin(store).queue_metrics("other")).ready == 1
    assert await pgqrs.admin(store).purge("tasks", archived=True) == 1


async def test_a_purged_message_cannot_be_archived_by_its_holder(store):
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await producer.enqueue("gone")
    [message] = await consumer.dequeue()
    await pgqrs.admin(store).purge("tasks")

    with pytest.raises(pgqrs.LeaseLost):
        await message.archive()


async def test_a_queue_that_holds_messages_is_deleted_only_by_force(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    await store.consumer("tasks")
    await producer.enqueue_many([1, 2])

    with pytest.raises(pgqrs.InvalidTransition, match=r"still holds 2 live messages.*force=True"):
        await pgqrs.admin(store).delete_queue("tasks")
    assert await pgqrs.admin(store).delete_queue("tasks", force=True) == 2

    assert await pgqrs.admin(store).queues() == []
    assert await pgqrs.admin(store).workers() == []
    with pytest.raises(pgqrs.QueueNotFound):
        await producer.enqueue(3)


async def test_a_producer_finds_its_queue_again_after_it_was_made_anew(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    await pgqrs.admin(store).delete_queue("tasks")
    await store.create_queue("tasks")

    await producer.enqueue("hello")

    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == 1


async def test_a_consumer_finds_its_queue_again_after_it_was_made_anew(store, monkeypatch):
    monkeypatch.setattr("pgqrs.engine.queues.leases.HEARTBEAT_SECONDS", 0.0)
    await store.create_queue("tasks")
    consumer = await store.consumer("tasks")
    await pgqrs.admin(store).delete_queue("tasks")
    with pytest.raises(pgqrs.QueueNotFound):
        await consumer.dequeue()
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue("hello")

    assert [m.payload for m in await consumer.dequeue()] == ["hello"]


async def test_nobody_takes_messages_out_of_a_workflows_queue_but_its_workers(store):
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger().execute(store)

    with pytest.raises(pgqrs.InvalidTransition, match="belongs to workflow 'flow'; its messages are its runs"):
        await pgqrs.admin(store).purge("flow")
    with pytest.raises(pgqrs.InvalidTransition, match="belongs to workflow"):
        await store.consumer("flow")
    assert await pgqrs.admin(store).purge("flow", archived=True) == 0
