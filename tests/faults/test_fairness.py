"""Storms of retries, poison, priorities and missing handlers do not hold up other runs."""

import pytest

import pgqrs
from pgqrs.db.queries import Query


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.mark.row("B8.8")
async def test_runs_that_fail_together_come_back_spread_out(store, flow, clock):
    async def handler(ctx):
        raise ValueError("everything is down")

    await flow.trigger_many([None] * 100, max_attempts=3).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    rows = await store.database.fetch(Query("due", "select visible_after from pgqrs_messages order by 1"))
    seconds = [(row[0] - clock.now()).total_seconds() for row in rows]

    assert len(set(seconds)) > 50
    assert seconds[-1] - seconds[0] > 0.3 * seconds[0]


@pytest.mark.row("B8.9")
async def test_a_run_that_fails_again_and_again_does_not_hold_up_those_behind_it(store, flow):
    done = []

    async def handler(ctx, n: int):
        if n == 0:
            raise ValueError("poison")
        done.append(n)

    await flow.trigger_many(range(5)).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(1).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert done == [1, 2, 3, 4]


@pytest.mark.row("B8.10")
async def test_a_low_priority_waits_only_for_what_is_above_it(store):
    """There is no ageing: that is said in the guide. What is low gets its turn when the flood has been worked off."""
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await producer.enqueue("low")
    await producer.enqueue_many(range(20), priority=5)
    got = [message.payload for message in await consumer.dequeue(30)]

    assert got == [*range(20), "low"]


@pytest.mark.row("B8.11")
async def test_a_run_that_no_worker_has_code_for_is_left_alone_and_can_be_seen(store, flow):
    await store.create_workflow("other")
    run_id = await pgqrs.workflow("other").trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx: None).create(store)
    await worker.run_until_idle()
    metrics = await pgqrs.workflow("other").metrics(store)
    await worker.close()

    assert ((await pgqrs.workflow("other").get_run(run_id, store)).status, metrics.live_workers) == ("PENDING", 0)
    assert metrics.queue_depth == 1
