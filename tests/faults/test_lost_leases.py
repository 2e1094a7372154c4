"""Who has lost a lease, and does not know it yet, can do nothing with what it held."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.queries import Query
from pgqrs.db.runs import claims
from pgqrs.db.tables import workflows
from pgqrs.db.tables.messages import Source


async def step(ctx, ledger):
    await ctx.step("late", lambda: 1)


async def transaction(ctx, ledger):
    async def write(tx):
        await tx.execute(f"insert into {ledger} values (1)")

    await ctx.transaction("late", write)


async def emit(ctx, ledger):
    await ctx.emit("late")


async def progress(ctx, ledger):
    await ctx.progress(1, 2, "late")


async def spawn(ctx, ledger):
    await ctx.spawn("flow")


async def take_signal(ctx, ledger):
    await ctx.wait_for("go")


async def sleep(ctx, ledger):
    await ctx.sleep(60)


async def fail(ctx, ledger):
    raise OSError("late")


async def succeed(ctx, ledger):
    return "late"


TABLES = ("workflow_runs", "messages", "workflow_steps", "signals", "workflow_events", "outbox_events")


@pytest.mark.parametrize(
    "late",
    [step, transaction, emit, progress, spawn, take_signal, sleep, fail, succeed],
    ids=lambda each: each.__name__,
)
async def test_whatever_a_handler_does_after_its_run_was_taken_changes_nothing(store, clock, config, late):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    queue_id = (await workflows.get(store.database, "flow")).queue_id
    ledger = f'"{config.schema}".ledger' if config.backend == "postgres" else "ledger"
    await store.database.execute(Query("ledger", f"create table {ledger} (amount integer)"))
    before = {}

    async def rows():
        found = {
            table: await store.database.fetch(Query(table, f"select * from pgqrs_{table} order by 1, 2"))
            for table in TABLES
        }
        found["ledger"] = await store.database.fetch(Query("ledger", f"select amount from {ledger}"))
        return {table: [tuple(row) for row in those] for table, those in found.items()}

    async def handler(ctx, params):
        clock.advance(3600)
        assert await claims.claim(store.database, [Source(queue_id, 60.0)], worker_id=worker.worker_id, batch=1)
        before.update(await rows())
        return await late(ctx, ledger)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run_id = await flow.trigger().execute(store)
    await flow.signal(run_id, store, "go")
    await asyncio.wait_for(worker.run_until_idle(), 30)

    assert await rows() == before
    await worker.close()


async def test_a_message_that_fails_under_a_lost_lease_stays_with_its_new_holder(store, clock):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue("x")
    one, other = await store.consumer("tasks"), await store.consumer("tasks")
    held = []

    async def handler(message):
        clock.advance(3600)
        held.extend(await other.dequeue())
        raise OSError("late")

    await asyncio.wait_for(one.process(handler, concurrency=1, until_idle=True), 30)

    assert [message.attempts for message in held] == [2]
    await held[0].archive()


async def test_an_answer_is_not_given_to_a_worker_that_loses_the_run_meanwhile(store, clock):
    """It would see another order than the worker that has the run now."""
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    queue_id = (await workflows.get(store.database, "flow")).queue_id
    passes = []

    async def handler(ctx, params):
        seen = []
        passes.append(seen)

        async def note(wait):
            seen.append(await wait)

        await asyncio.gather(note(ctx.pause("how much?")), note(ctx.wait_for("go")))

    run_id = await flow.trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await flow.resume(run_id, store, step="pause", data=5)

    async def take():
        clock.advance(3600)
        assert await claims.claim(store.database, [Source(queue_id, 60.0)], worker_id=worker.worker_id, batch=1)

    with faults.injected(faults.at("before", "claims.number_step", take)):
        await asyncio.wait_for(worker.run_until_idle(), 30)
    await worker.close()

    assert passes == [[], []]


async def test_a_step_does_not_begin_in_a_worker_that_loses_the_run_meanwhile(store, clock):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    tried, shipped = [], []

    def book():
        tried.append("book")
        if len(tried) == 1:
            raise pgqrs.TransientError("no answer")

    async def handler(ctx, params):
        try:
            await ctx.step("book", book)
        except pgqrs.TransientError:
            await ctx.step("apologise", lambda: None)
            raise
        await ctx.step("ship", lambda: shipped.append("order"))

    run_id = await flow.trigger(max_attempts=2).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    clock.advance(3600)
    with faults.injected(faults.at("before", "claims.lose_places", lambda: flow.cancel(run_id, store))):
        await asyncio.wait_for(worker.run_until_idle(), 30)
    await worker.close()

    assert (tried, shipped) == (["book"], [])


@pytest.mark.backends("postgres")
async def test_a_step_that_commits_while_its_run_is_leased_again_is_seen(store, clock, config):
    """The transaction of a worker whose lease is over may commit after the statement that leases the run began."""
    import asyncpg

    await store.create_workflow("flow")
    queue_id = (await workflows.get(store.database, "flow")).queue_id
    worker = await pgqrs.consumer("w", 0, "flow").handler(step).create(store)
    run_id = await pgqrs.workflow("flow").trigger().execute(store)
    [first] = await claims.claim(store.database, [Source(queue_id, 60.0)], worker_id=worker.worker_id, batch=1)
    clock.advance(3600)
    connection = await asyncpg.connect(config.dsn, server_settings={"search_path": config.schema})
    late = connection.transaction()
    await late.start()
    # The statement that leases runs waits here, with its snapshot taken: for the row of the run, which it updates last.
    await connection.execute("select 1 from pgqrs_workflow_runs for update")
    await connection.execute(
        "insert into pgqrs_workflow_steps (run_id, step_id, ordinal, status, output, attempts, sequence,"
        " started_at, completed_at) values ($1, 'late', 0, 'SUCCESS', '1', 1, 1, now(), now())",
        run_id,
    )
    claiming = asyncio.create_task(
        claims.claim(store.database, [Source(queue_id, 60.0)], worker_id=worker.worker_id, batch=1)
    )
    async with asyncio.timeout(30):
        while not await connection.fetchval("select count(*) from pg_locks where not granted"):
            await asyncio.sleep(0)
    await late.commit()
    [again] = await claiming
    await connection.close()
    await worker.close()

    assert (first.steps, list(again.steps)) == ({}, ["late"])
