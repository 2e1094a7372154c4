"""Metrics: counts, rates and durations against numbers worked out by hand."""

from datetime import timedelta

import pytest

import pgqrs
from pgqrs.db.views import metrics
from rig.history import PastRun, write

# Runs that were made up: nobody executed them, and they have no messages.
pytestmark = pytest.mark.breaks("I1", "I4", "I8", "I12")


def ended(run_id, clock, *, status="SUCCESS", ago=60.0, took=1.0, waited=0.0, workflow="flow"):
    """A run that ended `ago` seconds before now."""
    end = clock.now() - timedelta(seconds=ago)
    start = end - timedelta(seconds=took)
    return PastRun(run_id, workflow, status, start - timedelta(seconds=waited), start, end)


async def test_rates_and_durations_are_those_of_the_window(store, clock):
    runs = [ended(n, clock, took=n, waited=10 * n) for n in range(1, 11)]
    runs += [
        ended(11, clock, status="ERROR", took=11, waited=110),
        ended(12, clock, status="ERROR", took=12, waited=120),
    ]
    # Neither of these counts: cancelled, and too long ago.
    runs += [ended(13, clock, status="CANCELLED", took=500), ended(14, clock, ago=7200, took=900)]
    await write(store, runs)

    found = await pgqrs.workflow_metrics("flow", store, window=timedelta(hours=1))

    assert found.ended == pgqrs.CappedCount(12, capped=False)
    assert found.success_rate == pytest.approx(100 * 10 / 12)
    assert found.avg_duration == timedelta(seconds=6.5)
    assert found.p50_duration == timedelta(seconds=6.5)
    assert found.p95_duration == timedelta(seconds=11.45)
    assert (found.p50_wait, found.p95_wait) == (timedelta(seconds=65), timedelta(seconds=114.5))


async def test_counts_are_of_all_runs_of_the_workflow(store, clock):
    await write(store, [ended(n, clock, ago=10**6) for n in range(1, 4)])
    await write(store, [ended(4, clock, workflow="other"), ended(5, clock, status="CANCELLED")])
    await pgqrs.workflow("flow").trigger_many([1, 2]).execute(store)

    found = await pgqrs.workflow_metrics("flow", store)

    assert {status: count.count for status, count in found.runs.items() if count.count} == {
        "PENDING": 2,
        "SUCCESS": 3,
        "CANCELLED": 1,
    }


async def test_a_workflow_without_runs_has_no_rates(store):
    await store.create_workflow("flow")

    found = await pgqrs.workflow_metrics("flow", store)

    assert (found.success_rate, found.avg_duration, found.p95_duration, found.p50_wait) == (None, None, None, None)
    assert (found.queue_depth, found.oldest_ready_age_seconds, found.live_workers) == (0, None, 0)


async def test_counts_and_samples_stop_at_their_caps(store, clock, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_COUNTED", 3)
    monkeypatch.setattr(metrics, "MOST_SAMPLED", 4)
    await write(store, [ended(n, clock, ago=100 - n, took=n) for n in range(1, 11)])
    await pgqrs.workflow("flow").trigger_many(range(9)).execute(store)

    found = await pgqrs.workflow_metrics("flow", store)

    assert found.runs["SUCCESS"] == pgqrs.CappedCount(3, capped=True)
    assert str(found.runs["SUCCESS"]) == "3+"
    assert found.ended == pgqrs.CappedCount(4, capped=True)
    assert found.avg_duration == timedelta(seconds=8.5)
    assert found.queue.capped
    assert found.queue_depth > 3


async def test_the_depth_of_a_queue_tells_what_its_messages_are_doing(store, clock):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    await producer.enqueue_many(range(3), priority=5)
    clock.advance(7)
    await producer.enqueue_many(range(2))
    await producer.enqueue_many(range(4), delay=3600, priority=-1)
    consumer = await store.consumer("tasks")
    await consumer.dequeue(1, lease_seconds=30)

    [depth] = (await pgqrs.admin(store).stats()).queues

    assert (depth.queue, depth.ready, depth.scheduled, depth.leased, depth.dead) == ("tasks", 4, 4, 1, 0)
    assert depth.oldest_ready_age_seconds == 7
    assert not depth.capped


async def test_dead_letters_and_last_leases_are_told_apart(store, clock, config):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many(range(2))
    consumer = await store.consumer("tasks")
    for _ in range(store.config.max_attempts):
        clock.advance(31)
        held = await consumer.dequeue(2, lease_seconds=30)
    await consumer.extend(held[0], 100)
    clock.advance(31)

    [depth] = (await pgqrs.admin(store).stats()).queues

    assert (depth.ready, depth.leased, depth.dead) == (0, 1, 1)


async def test_depth_agrees_with_the_queues_own_metrics(store, clock):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    consumer = await store.consumer("tasks")
    for number in range(30):
        await producer.enqueue(number, priority=number % 4, delay=[0, 0, 50, 500][number % 4])
        if number % 3 == 0:
            await consumer.dequeue(1, lease_seconds=20 + number)
        clock.advance(number)

    [depth] = (await pgqrs.admin(store).stats()).queues
    whole = await pgqrs.admin(store).queue_metrics("tasks")

    names = ("queue", "paused", "ready", "scheduled", "leased", "dead", "oldest_ready_age_seconds")
    assert {name: getattr(depth, name) for name in names} == {name: getattr(whole, name) for name in names}
    assert 0 < depth.ready < 30


async def test_stats_tell_ready_stale_and_stopped_workers(store, clock):
    await store.create_queue("tasks")
    stale = await store.consumer("tasks", name="stale")
    clock.advance(3 * store.config.lease_seconds + 1)
    await store.consumer("tasks", name="ready")
    stopped = await store.consumer("tasks", name="stopped")
    await stopped.close()

    found = await pgqrs.admin(store).stats()

    assert found.workers == pgqrs.WorkerHealth(ready=1, stale=1, stopped=1)
    await stale.close()


async def test_stats_are_of_the_whole_store(store, clock):
    await write(store, [ended(1, clock), ended(2, clock, workflow="other", status="ERROR")])
    await pgqrs.workflow("flow").trigger(1).execute(store)

    found = await pgqrs.admin(store).stats()

    assert found.schema_version == await pgqrs.admin(store).version()
    assert {status: count.count for status, count in found.runs.items() if count.count} == {
        "PENDING": 1, "SUCCESS": 1, "ERROR": 1,
    }  # fmt: skip
    none, one = pgqrs.CappedCount(0, capped=False), pgqrs.CappedCount(1, capped=False)
    assert found.live == (pgqrs.LiveRuns("flow", one, none, none), pgqrs.LiveRuns("other", none, none, none))
    assert [depth.queue for depth in found.queues] == ["flow", "other"]
    assert found.outbox == pgqrs.OutboxStats(none, none)
    assert found.schedules == pgqrs.ScheduleStats(0, 0, None)
    assert found.database_bytes is not None
    assert found.database_bytes > 10_000


async def test_a_live_worker_of_a_workflow_is_counted(store, clock):
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("worker-1", 8080, "flow").handler(lambda ctx, params: None).create(store)

    assert (await pgqrs.workflow_metrics("flow", store)).live_workers == 1
    await worker.close()


async def test_metrics_of_an_unknown_workflow_name_the_nearest(store):
    await store.create_workflow("zip_files")

    with pytest.raises(pgqrs.WorkflowNotFound, match="did you mean 'zip_files'"):
        await pgqrs.workflow_metrics("zip_flies", store)


@pytest.mark.parametrize("window", [-1, "1h", float("nan"), True])
async def test_a_window_is_a_length_of_time(store, window):
    with pytest.raises(pgqrs.ConfigError, match="window"):
        await pgqrs.workflow_metrics("flow", store, window=window)
