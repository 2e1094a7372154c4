"""PostgreSQL: everybody locks a run's message first and the run after it, and holds both until what they do is done."""

import asyncio

import asyncpg
import pytest

import pgqrs
from pgqrs.db.queries import Query
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


async def test_nobody_cancels_a_run_in_the_middle_of_its_transaction(store, flow):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(ctx, params):
        async def work(tx):
            begun.set()
            await go_on.wait()

        await ctx.transaction("work", work)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run_id = await flow.trigger().execute(store)
    working = asyncio.create_task(worker.run_until_idle())
    await asyncio.wait_for(begun.wait(), 30)
    cancelling = asyncio.create_task(flow.cancel(run_id, store))
    await asyncio.wait_for(until_it_waits(store, cancelling), 30)
    early = cancelling.done()
    go_on.set()
    await asyncio.gather(working, cancelling)

    assert not early
    assert (await flow.get_run(run_id, store)).status == "CANCELLED"
    await worker.close()
