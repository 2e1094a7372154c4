"""A worker gives signs of life also while it has nothing to do."""

import asyncio

import pgqrs
from pgqrs.db.tables import workers


async def test_a_worker_that_never_had_a_run_gives_signs_of_life(live_store, monkeypatch):
    beaten = asyncio.Event()
    loop = asyncio.get_running_loop()
    beat = workers.heartbeat

    async def heard(db, worker_id):
        loop.call_soon_threadsafe(beaten.set)
        return await beat(db, worker_id)

    monkeypatch.setattr(workers, "heartbeat", heard)
    await live_store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx: None).create(live_store)
    task = asyncio.create_task(worker.poll_forever())

    worker._loop._heartbeat._asked.set()
    worker._loop._heartbeat._sooner.set()
    await asyncio.wait_for(beaten.wait(), 60)

    worker.stop()
    await task
