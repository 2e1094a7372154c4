"""Lines that break or fall silent between a worker and PostgreSQL: what is given up must be given up cleanly."""

import asyncio
import threading

import pytest

from pgqrs import faults
from pgqrs.db.database import Kind
from pgqrs.engine.heartbeat import Heartbeat


@pytest.mark.backends("postgres")
async def test_a_call_that_is_cancelled_on_a_broken_line_says_that_it_was_cancelled(store):
    begun = asyncio.Event()

    async def work(unit):
        unit.connection.terminate()
        begun.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(store.database.perform(work, kind=Kind.READ, idempotent=True))
    await begun.wait()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call


async def test_heartbeats_go_on_whatever_one_of_them_raised(live_store):
    beaten = threading.Event()
    heartbeat = Heartbeat(live_store.database, live_store.config, worker_id=1, lease_seconds=1)

    def broken():
        raise RuntimeError("nobody thought of this one")

    def beat(point):
        if point == ("before", "messages.renew"):
            beaten.set()

    with faults.injected(faults.at("before", "workers.heartbeat", broken)), faults.injected(beat):
        heartbeat.hold(1, 1, run_id=1, lease_seconds=1)
        went_on = await asyncio.to_thread(beaten.wait, 10)
        await asyncio.to_thread(heartbeat.close)

    assert went_on
