"""PostgreSQL: whatever a database's sessions default to, our statements run as they were written to run."""

import asyncio
import contextlib

import asyncpg
import pytest

import pgqrs
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from rig.databases import database

pytestmark = pytest.mark.backends("postgres")

LEVELS = ["'repeatable read'", "serializable"]
CACHES = pytest.mark.parametrize("cache", [256, 0], ids=["direct", "as behind a pooler"])


@contextlib.asynccontextmanager
async def connected(config, *, cache=256, retry_seconds=10.0, **settings):
    """A store on a database whose sessions have these settings."""
    async with (
        database(config.dsn, **settings) as dsn,
        pgqrs.connect(
            dsn,
            install=True,
            pool_size=6,
            statement_cache_size=cache,
            retry_seconds=retry_seconds,
            poll_interval_seconds=0.2,
        ) as store,
    ):
        yield store


@CACHES
@pytest.mark.parametrize("level", LEVELS)
async def test_every_unit_of_work_names_its_isolation_level(config, cache, level):
    asked = Query("level", "select current_setting('transaction_isolation')")
    async with connected(config, cache=cache, default_transaction_isolation=level) as store:
        levels = {
            kind: await store.database.perform(lambda unit: unit.fetch(asked), kind=kind, idempotent=True)
            for kind in Kind
        }

    assert {kind: rows[0][0] for kind, rows in levels.items()} == dict.fromkeys(Kind, "read committed")


@pytest.mark.parametrize("level", LEVELS)
async def test_no_wake_up_is_lost_whatever_the_default_isolation(config, level):
    """A wait that commits just after a signal, or after its last child, must see it."""
    count = 300
    reached = [asyncio.Event() for _ in range(count)]

    async def waits(ctx, n):
        reached[n].set()
        return await ctx.wait_for("go")

    async def child(ctx, n):
        return n

    async def parent(ctx, n):
        return sum(await ctx.map("p.child", [n, n]))

    async with connected(config, default_transaction_isolation=level) as store:
        for name in ("p.waits", "p.child", "p.parent"):
            await store.create_workflow(name)
        workers = [
            await pgqrs.worker(f"worker-{i}", prefixes=["p."], concurrency=20)
            .workflows({"p.waits": waits, "p.child": child, "p.parent": parent})
            .create(store)
            for i in range(2)
        ]
        working = [asyncio.create_task(worker.poll_forever()) for worker in workers]
        flows = {name: pgqrs.workflow(name) for name in ("p.waits", "p.parent")}
        ids = {name: await flow.trigger_many(range(count)).execute(store) for name, flow in flows.items()}

        async def signalled(n, run_id):
            await reached[n].wait()
            await flows["p.waits"].signal(run_id, store, "go", n)

        async def is_ended(flow, run_id):
            try:
                await (await flow.get_run(run_id, store)).result(timeout=15)
            except pgqrs.WaitTimeout:
                return False
            return True

        async with asyncio.timeout(60):
            # While the worker records that it waits.
            await asyncio.gather(*(signalled(n, run_id) for n, run_id in enumerate(ids["p.waits"])))
            ended = await asyncio.gather(
                *(is_ended(flow, each) for name, flow in flows.items() for each in ids[name])
            )
        for worker in workers:
            worker.stop()
        await asyncio.gather(*working)

        assert ended.count(False) == 0
        assert await pgqrs.admin(store).check_invariants() == []


@CACHES
@pytest.mark.parametrize("timeout", ["statement_timeout", "lock_timeout"])
async def test_the_servers_timeouts_cost_no_run_an_attempt(config, cache, timeout):
    """With 100 ms, and another session that locks the runs for longer, again and again."""
    done = asyncio.Event()

    async def compete(dsn):
        connection = await asyncpg.connect(dsn, server_settings={timeout: "0"}, statement_cache_size=0)
        while not done.is_set():
            async with connection.transaction():
                await connection.execute("lock table pgqrs_workflow_runs in share row exclusive mode")
                await connection.execute("select pg_sleep(0.25)")
            await asyncio.sleep(0.05)
        await connection.close()

    async def handler(ctx, n):
        return await ctx.step("twice", lambda: 2 * n)

    async with connected(config, cache=cache, **{timeout: "'100ms'"}) as store:
        await store.create_workflow("flow")
        flow = pgqrs.workflow("flow")
        competing = asyncio.create_task(compete(store.config.dsn))
        worker = await pgqrs.consumer("worker-1", 8080, "flow").handler(handler).create(store)
        working = asyncio.create_task(worker.poll_forever())
        try:
            ids = await asyncio.gather(*(flow.trigger(n).execute(store) for n in range(20)))
            results = [await (await flow.get_run(each, store)).result(timeout=20) for each in ids]
            runs = [await flow.get_run(each, store) for each in ids]
        finally:
            done.set()
            await competing
            worker.stop()
            await working

    assert results == [2 * n for n in range(20)]
    assert {run.attempt for run in runs} == {1}


@pytest.mark.parametrize("end", ["idle_in_transaction_session_timeout", "transaction_timeout"])
async def test_a_transaction_that_the_server_ends_is_tried_again(config, end):
    """The server's protection against a process that stands still is left as it is."""
    plain = await asyncpg.connect(config.dsn, statement_cache_size=0)
    known = await plain.fetchval("select count(*) from pg_settings where name = $1", end)
    await plain.close()
    if not known:
        pytest.skip(f"this server has no {end}")
    tries = []

    async def slow(unit):
        tries.append(1)
        await unit.fetch(Query("first", "select 1"))
        if len(tries) == 1:
            # The server's own clock is at work here.
            await asyncio.sleep(0.5)
        return await unit.fetch(Query("second", "select 2"))

    async with connected(config) as store:
        async with store.database._pool.acquire() as connection:
            await connection.execute(f"set {end} = '200ms'")
        rows = await store.database.perform(slow, kind=Kind.UNIT, idempotent=False)

    assert rows[0][0] == 2
    assert len(tries) == 2


async def test_a_statement_that_somebody_cancels_is_tried_again(live_store):
    tries = []

    async def cancelled(unit):
        tries.append(1)
        if len(tries) == 1:
            await unit.fetch(Query("cancel", "select pg_cancel_backend(pg_backend_pid()), pg_sleep(1)"))
        return await unit.fetch(Query("fine", "select 2"))

    rows = await live_store.database.perform(cancelled, kind=Kind.UNIT, idempotent=False)

    assert (rows[0][0], len(tries)) == (2, 2)


async def test_a_statement_that_is_cancelled_each_time_is_not_told_as_a_database_that_is_away(config):
    async def cancelled(unit):
        return await unit.fetch(Query("cancel", "select pg_cancel_backend(pg_backend_pid()), pg_sleep(1)"))

    async with connected(config, retry_seconds=0.2) as store:
        with pytest.raises(pgqrs.ConnectionFailed, match=r"cancelled by the server.*nothing of this call") as caught:
            await store.database.perform(cancelled, kind=Kind.UNIT, idempotent=False)

    assert "cannot use" not in str(caught.value)
    assert not caught.value.ambiguous


@CACHES
async def test_nulls_in_arrays_are_nulls_whatever_the_default(config, cache):
    """`array_nulls = off` takes NULL in the text of an array for a word."""
    async with connected(config, cache=cache, array_nulls="off") as store:
        await store.create_queue("tasks")
        producer = await store.producer("tasks")
        await producer.enqueue_many([{"n": 1}, None])

        assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == 2
