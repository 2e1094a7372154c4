"""PostgreSQL: everybody locks a run's message first and the run after it, and holds both until what they do is done."""

import asyncio

import asyncpg
import pytest

import pgqrs
from pgqrs.db.database import Kind
from pgqrs.db.drivers.postgres import driver
from pgqrs.db.queries import Query
from pgqrs.db.runs import settlement, triggers
from pgqrs.db.runs.records import RunWrite, StepRecord
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.types import StepStatus
from rig.failures import LEASE_SECONDS, Failures

pytestmark = pytest.mark.backends("postgres")

VERBS = {
    "cancel": lambda flow, run_id, store: flow.cancel(run_id, store),
    "pause": lambda flow, run_id, store: flow.pause(run_id, store),
    "signal": lambda flow, run_id, store: flow.signal(run_id, store, "go"),
    "restart": lambda flow, run_id, store: flow.restart(run_id, store),
    "delete": lambda flow, run_id, store: flow.delete(run_id, store),
}


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.fixture
async def connection(config):
    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    await connection.execute(f'set search_path = "{config.schema}"')
    yield connection
    await connection.close()


async def until_it_waits(store, task):
    """Until somebody waits for a lock in this schema's tables, or the task has not needed one."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like :like"
    while not task.done():
        if (await store.database.fetch(Query("waiting", waiting), like=f"%{store.config.schema}%"))[0][0]:
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("verb", VERBS)
async def test_who_acts_from_outside_locks_the_message_first(store, flow, connection, clock, verb):
    run_id = await flow.trigger().execute(store)
    if verb == "restart":
        # Its worker has crashed.
        await (await Failures(store).begin()).claim(run_id)
        clock.advance(LEASE_SECONDS)
    async with connection.transaction():
        await connection.fetch("select * from pgqrs_messages where run_id = $1 for update", run_id)
        acting = asyncio.create_task(VERBS[verb](flow, run_id, store))
        await asyncio.wait_for(until_it_waits(store, acting), 30)
        # Raises when somebody has the run already.
        await connection.fetch("select * from pgqrs_workflow_runs where run_id = $1 for update nowait", run_id)
        early = acting.done()
    await acting

    assert not early


@pytest.mark.parametrize("verb", ["cancel", "pause", "delete"])
async def test_who_acts_during_a_transaction_of_the_run_does_not_wait_and_nothing_of_it_stays(store, flow, verb):
    begun, acted = asyncio.Event(), asyncio.Event()

    async def handler(ctx, params):
        async def work(tx):
            await tx.execute("create table made (n integer)")
            begun.set()
            await acted.wait()

        await ctx.transaction("work", work)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run_id = await flow.trigger().execute(store)
    working = asyncio.create_task(worker.run_until_idle())
    await asyncio.wait_for(begun.wait(), 30)
    await asyncio.wait_for(VERBS[verb](flow, run_id, store), 30)
    acted.set()
    await working
    made = await store.database.fetch(Query("made", "select to_regclass('made')"))
    steps = await flow.steps(run_id, store)
    await worker.close()

    assert made[0][0] is None
    assert [step for step in steps if step.status == "SUCCESS"] == []


async def test_nobody_cancels_a_run_between_the_look_at_its_lease_and_the_record(store, flow):
    """The end of a transaction: the lease is checked and the message locked in one go."""
    run_id = await flow.trigger().execute(store)
    fence = (await (await Failures(store).begin()).claim(run_id)).fence
    done = StepRecord("work", 1, StepStatus.SUCCESS, output="1")

    async def ending(unit):
        assert await settlement.hold(unit, [fence])
        cancelling = asyncio.create_task(flow.cancel(run_id, store))
        await asyncio.wait_for(until_it_waits(store, cancelling), 30)
        early = cancelling.done()
        await settlement.record_steps(unit, [RunWrite(fence, (done,))])
        return early, cancelling

    early, cancelling = await store.database.perform(ending, kind=Kind.UNIT, idempotent=False)
    await cancelling

    assert not early
    assert (await flow.get_run(run_id, store)).status == "CANCELLED"


@pytest.mark.row("B4.14")
async def test_batches_in_opposite_orders_do_not_deadlock(store, monkeypatch):
    db = store.database
    workflow = await workflows.create(db, "flow")
    worker_id = await workers.register(db, queue_id=workflow.queue_id, name="w", port=0, info={"pid": 1})
    await triggers.trigger(db, NewRuns(workflow.workflow_id, workflow.queue_id, ["null"] * 40))
    from pgqrs.db.runs import claims

    held = await claims.claim(db, [Source(workflow.queue_id, 60)], worker_id=worker_id, batch=40)
    deadlocks = []
    explained = driver.PostgresDriver._explained

    def noticed(self, error, *, in_doubt):
        if isinstance(error, asyncpg.DeadlockDetectedError):
            deadlocks.append(error)
        return explained(self, error, in_doubt=in_doubt)

    monkeypatch.setattr(driver.PostgresDriver, "_explained", noticed)

    def batch(order, n):
        return [RunWrite(claim.fence, (StepRecord(f"s{n}", n, StepStatus.SUCCESS, output="1"),)) for claim in order]

    for n in range(10):
        forth, back = batch(held, 2 * n), batch(held[::-1], 2 * n + 1)
        await asyncio.gather(settlement.commit(db, forth), settlement.commit(db, back))

    assert deadlocks == []
