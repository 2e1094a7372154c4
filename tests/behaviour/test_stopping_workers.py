"""A worker is told through the database to stop; and gives signs of life also while it has nothing to do."""

import asyncio

import pytest

import pgqrs
from pgqrs.db.runs import claims
from pgqrs.db.tables import workers
from pgqrs.engine import heartbeat

flow = pgqrs.workflow("flow")


@pytest.fixture
async def started(live_store):
    """Starts a worker, and stops it when the test has ended."""
    await live_store.create_workflow("flow")
    tasks = []

    async def start_one(handler):
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
        tasks.append((worker, asyncio.create_task(worker.poll_forever())))
        return tasks[-1]

    yield start_one
    for worker, task in tasks:
        worker.stop()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_idle_worker_that_is_told_to_stop_ends(live_store, started):
    worker, task = await started(lambda ctx: None)

    told = await pgqrs.admin(live_store).stop_worker(worker.worker_id)

    await asyncio.wait_for(task, 60)
    assert told.status == "STOPPED"


async def test_a_worker_that_is_told_to_stop_finishes_what_it_has_and_takes_nothing_more(live_store, started):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(ctx, n):
        begun.set()
        await go_on.wait()
        return n

    first = await flow.trigger(1).execute(live_store)
    worker, task = await started(handler)
    await asyncio.wait_for(begun.wait(), 60)

    told = await pgqrs.admin(live_store).stop_worker(worker.worker_id)
    while not worker._loop.is_stopping:
        await asyncio.sleep(0.01)
    second = await flow.trigger(2).execute(live_store)
    go_on.set()
    await asyncio.wait_for(task, 60)

    assert told.leased == 1
    assert (await flow.get_run(first, live_store)).status == "SUCCESS"
    assert (await flow.get_run(second, live_store)).status == "PENDING"


async def test_what_a_lease_brings_after_the_stop_is_handed_back(live_store, started, monkeypatch):
    asked, answer, begun = asyncio.Event(), asyncio.Event(), []
    claim = claims.claim

    async def slow(*args, **named):
        asked.set()
        await answer.wait()
        return await claim(*args, **named)

    monkeypatch.setattr(claims, "claim", slow)
    worker, task = await started(lambda ctx, n: begun.append(n))
    await asyncio.wait_for(asked.wait(), 60)

    run_id = await flow.trigger(1).execute(live_store)
    worker.stop()
    answer.set()
    await asyncio.wait_for(task, 60)

    run = await flow.get_run(run_id, live_store)
    assert (run.status, begun) == ("PENDING", [])


async def test_one_that_runs_until_idle_stops_too(live_store):
    await live_store.create_workflow("flow")
    run_ids = await flow.trigger_many([1, 2, 3]).execute(live_store)

    async def handler(ctx, n):
        worker.stop()

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(1).create(live_store)
    await asyncio.wait_for(worker.run_until_idle(), 60)
    await worker.close()

    statuses = [(await flow.get_run(run_id, live_store)).status for run_id in run_ids]
    assert statuses == ["SUCCESS", "PENDING", "PENDING"]


async def test_what_the_last_run_has_triggered_is_done_before_it_is_idle(live_store, monkeypatch):
    await live_store.create_workflow("flow")
    await flow.trigger_many([1, 2]).execute(live_store)
    asked, triggered = asyncio.Event(), []
    claim = claims.claim

    async def late(*args, **named):
        """Nothing there, it says, when all that was at work has ended."""
        found = await claim(*args, **named)
        if not found:
            asked.set()
            while not worker._loop._slots.is_empty:
                await asyncio.sleep(0.001)
        return found

    async def handler(ctx, n):
        if n == 2:
            await asked.wait()
            triggered.append(await flow.trigger(3).execute(live_store))

    monkeypatch.setattr(claims, "claim", late)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
    await asyncio.wait_for(worker.run_until_idle(), 60)
    await worker.close()

    assert (await flow.get_run(triggered[0], live_store)).status == "SUCCESS"


async def test_a_worker_whose_row_retention_took_goes_on(live_store, started):
    from pgqrs.db.queries import Query

    worker, task = await started(lambda ctx: None)
    await live_store.database.execute(
        Query("gone", "delete from pgqrs_workers where worker_id = :id"), id=worker.worker_id
    )

    worker._loop._heartbeat.heard(frozenset({heartbeat.WORKERS}))
    run_id = await flow.trigger(None).execute(live_store)
    await (await flow.get_run(run_id, live_store)).result(60)

    assert not task.done()


async def test_a_worker_that_never_had_a_run_gives_signs_of_life(live_store, started, monkeypatch):
    beaten = asyncio.Event()
    loop = asyncio.get_running_loop()
    beat = workers.heartbeat

    async def heard(db, worker_id):
        loop.call_soon_threadsafe(beaten.set)
        return await beat(db, worker_id)

    monkeypatch.setattr(workers, "heartbeat", heard)
    worker, _ = await started(lambda ctx: None)
    worker._loop._heartbeat.heard(frozenset({heartbeat.WORKERS}))

    await asyncio.wait_for(beaten.wait(), 60)


async def test_what_cannot_be_told_to_stop_is_refused(live_store):
    await live_store.create_queue("tasks")
    consumer = await live_store.consumer("tasks")

    with pytest.raises(pgqrs.InvalidTransition, match="its program has to close it"):
        await pgqrs.admin(live_store).stop_worker(consumer.worker_id)
    with pytest.raises(pgqrs.NotFound, match="no worker 999"):
        await pgqrs.admin(live_store).stop_worker(999)
