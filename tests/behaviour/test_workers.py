"""Workers: registered, alive, gone."""

import asyncio

import pytest

import pgqrs
from pgqrs.engine.heartbeat import Heartbeat


@pytest.fixture
async def admin(store):
    await store.create_queue("tasks")
    return pgqrs.admin(store)


async def test_a_consumer_is_registered_as_a_worker_of_its_queue(store, admin, clock):
    await store.consumer("tasks", name="worker-1", port=8080)

    [worker] = await admin.workers("tasks")

    assert (worker.name, worker.port, worker.queue, worker.status) == ("worker-1", 8080, "tasks", "READY")
    assert worker.created_at == worker.heartbeat_at == clock.now()
    assert worker.info["pid"] > 0


async def test_a_heartbeat_makes_the_worker_young_again(store, admin, clock):
    consumer = await store.consumer("tasks")
    clock.advance(60)
    assert (await admin.workers())[0].heartbeat_age_seconds == pytest.approx(60)

    await consumer.heartbeat()

    assert (await admin.workers())[0].heartbeat_age_seconds == pytest.approx(0)


async def test_dequeueing_gives_a_heartbeat_now_and_then(store, admin, clock, monkeypatch):
    monkeypatch.setattr("pgqrs.engine.queues.leases.HEARTBEAT_SECONDS", 0.0)
    consumer = await store.consumer("tasks")
    clock.advance(60)

    await consumer.dequeue()

    assert (await admin.workers())[0].heartbeat_age_seconds == pytest.approx(0)


async def test_a_worker_tells_how_much_it_holds(store, admin, clock):
    one, other = await store.consumer("tasks", name="one"), await store.consumer("tasks", name="other")
    await (await store.producer("tasks")).enqueue_many(range(5))
    await one.dequeue(3, lease_seconds=10)
    await other.dequeue(2, lease_seconds=100)

    assert {w.name: w.leased for w in await admin.workers("tasks")} == {"one": 3, "other": 2}
    clock.advance(10)
    assert {w.name: w.leased for w in await admin.workers("tasks")} == {"one": 0, "other": 2}


async def test_a_closed_consumer_is_a_stopped_worker(store, admin, clock):
    consumer = await store.consumer("tasks")
    clock.advance(5)
    await consumer.close()

    [worker] = await admin.workers("tasks")

    assert worker.status == pgqrs.WorkerStatus.STOPPED
    assert worker.stopped_at == clock.now()


async def test_a_worker_that_has_never_had_a_run_gives_signs_of_life(connect, config):
    async def nothing(ctx, params):
        return None

    async with pgqrs.connect_with(config.with_changes(lease_seconds=1), install=True) as store:
        worker = await pgqrs.worker("idle").workflows({"flow": nothing}).create(store)
        [made] = await pgqrs.admin(store).workers()
        polling = asyncio.create_task(worker.poll_forever())
        try:
            async with asyncio.timeout(30):
                while (await pgqrs.admin(store).workers())[0].heartbeat_at == made.heartbeat_at:
                    await asyncio.sleep(0.05)
        finally:
            worker.stop()
            await polling


async def test_a_lease_that_comes_while_the_heartbeat_rests_is_renewed_in_time(live_store):
    await live_store.create_queue("tasks")
    await (await live_store.producer("tasks")).enqueue(1)
    consumer = await live_store.consumer("tasks")
    heartbeat = Heartbeat(live_store.database, live_store.config, worker_id=consumer.worker_id, lease_seconds=6)
    heartbeat.start()
    try:
        async with asyncio.timeout(30):
            while not heartbeat._resting:
                await asyncio.sleep(0.01)
            [message] = await consumer.dequeue(1, lease_seconds=6)
            held = heartbeat.hold(message.id, message._lease.lease_token, run_id=1, lease_seconds=6)
            due = held.due
            while held.due == due:
                assert not held.is_lost
                await asyncio.sleep(0.01)
    finally:
        await asyncio.to_thread(heartbeat.close)


async def test_workers_are_told_apart_by_queue(store, admin):
    await store.create_queue("other")
    await store.consumer("tasks", name="a")
    await store.consumer("other", name="b")

    assert [w.name for w in await admin.workers("other")] == ["b"]
    assert [w.name for w in await admin.workers()] == ["a", "b"]


async def test_a_worker_declared_stopped_that_is_still_there_is_warned_of(store, admin, caplog):
    consumer = await store.consumer("tasks")
    from pgqrs.db.tables import workers

    await workers.stop(store.database, consumer.worker_id)
    await consumer.heartbeat()

    assert "declared stopped" in caplog.text
    assert (await admin.workers())[0].status == "STOPPED"
