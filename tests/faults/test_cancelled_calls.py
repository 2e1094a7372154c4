"""A call that is cancelled at any await leaves nothing open."""

import asyncio
import itertools
import types

import pytest

from pgqrs.db.runs import claims, triggers
from pgqrs.db.runs.records import StepRecord
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import messages, workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.types import StepStatus

# -- cancelled at every await ----------------------------------------------------------------------------


@types.coroutine
def cancelled_at(work, suspension):
    """Awaits the work, and cancels it where it waits for the so-manieth time; True when it never came so far."""
    step = work.send
    given = None
    for count in itertools.count():
        try:
            future = step(given)
        except StopIteration:
            return count <= suspension
        if count == suspension:
            # As a task does it: what is waited for is cancelled, and whoever waits hears of it a turn of the loop later.
            future.cancel()
            yield
            step, given = work.throw, asyncio.CancelledError()
            continue
        yield future
        step, given = work.send, None
    return None


class Calls:
    """The calls of the engine, on a run that is held."""

    def __init__(self, store):
        self.db = store.database

    async def begin(self):
        self.workflow = await workflows.create(self.db, "flow")
        queue_id = self.workflow.queue_id
        self.worker_id = await workers.register(self.db, queue_id=queue_id, name="w", port=0, info={"pid": 1})
        self.sources = [Source(queue_id, 60)]
        await self.trigger()
        [self.claimed] = await claims.claim(self.db, self.sources, worker_id=self.worker_id, batch=1)
        self.count = 0

    async def trigger(self):
        await triggers.trigger(self.db, NewRuns(self.workflow.workflow_id, self.workflow.queue_id, ["null"]))

    async def claim(self):
        await claims.claim(self.db, self.sources, worker_id=self.worker_id, batch=1)

    async def extend(self):
        await messages.extend(self.db, [self.claimed.fence[1:]], seconds=60.0)

    async def transact(self):
        self.count += 1

        async def work(transaction):
            await transaction.execute("select 1")
            return "1", ()

        step = StepRecord(f"step {self.count}", self.count, StepStatus.PENDING)
        assert await claims.transact(self.db, self.claimed.fence, step, work) == "1"

    async def connect(self):
        for connection, _ in list(self.db._pool._idle):
            connection.terminate()
        await self.look()

    async def look(self):
        await messages.next_due(self.db, [self.workflow.queue_id])


@pytest.mark.row("B2.8")
@pytest.mark.parametrize("verb", ["trigger", "claim", "extend", "transact", "look"])
async def test_a_call_that_is_cancelled_at_any_await_leaves_nothing_open(store, verb):
    await cancel_at_every_await(store, verb)


@pytest.mark.row("B2.8")
@pytest.mark.backends("postgres")
async def test_a_call_that_is_cancelled_while_it_connects_leaves_nothing_open(store):
    await cancel_at_every_await(store, "connect")


async def cancel_at_every_await(store, verb):
    on_postgres = store.config.backend == "postgres"
    calls = Calls(store)
    await calls.begin()
    reached = 0
    for suspension in itertools.count():
        try:
            if await asyncio.wait_for(cancelled_at(getattr(calls, verb)(), suspension), 20):
                break
        except asyncio.CancelledError:
            reached += 1
        if on_postgres:
            await nothing_is_open(store)
    await getattr(calls, verb)()

    assert reached >= (5 if on_postgres and verb in ("transact", "connect") else 1)


async def nothing_is_open(store):
    """All connections are back in the pool, and none of them is in a transaction."""
    pool = store.database._pool
    assert pool._count == len(pool._idle) == len(pool._all) <= store.config.pool_size
    for connection, _ in pool._idle:
        if not connection.is_closed():
            assert not connection.is_in_transaction()
            # Nor has the server begun one that the client does not know of.
            assert await connection.fetchval("select txid_current_if_assigned()") is None
