"""What a verb of the context does, and the record that it was done, are in one transaction."""

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.queries import Query


class Gone(Exception):
    """Stands for the death of a worker: its handler goes no further, and the run is tried again."""


def gone():
    raise Gone


@pytest.fixture
async def work(store, clock):
    """Runs a handler until it is done: it dies where it is told to, and goes on ten minutes later."""
    await store.create_workflow("flow")
    await store.create_workflow("child")
    workers = []

    async def run(handler, *, dies, signals=()):
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
        workers.append(worker)
        flow = pgqrs.workflow("flow")
        run_id = await flow.trigger().execute(store)
        for name, payload in signals:
            await flow.signal(run_id, store, name, payload)
        with faults.injected(faults.at(*dies, gone)):
            await worker.run_until_idle()
        clock.advance(600)
        await worker.run_until_idle()
        return await flow.get_run(run_id, store)

    yield run
    for worker in workers:
        await worker.close()


async def count(store, table):
    return (await store.database.fetch(Query("count", f"select count(*) from {table}")))[0][0]


async def test_a_worker_that_dies_after_a_transaction_has_done_it_once(store, config, work):
    ledger = f'"{config.schema}".ledger' if config.backend == "postgres" else "ledger"
    await store.database.execute(Query("ledger", f"create table {ledger} (amount integer)"))

    async def handler(ctx, params):
        async def debit(tx):
            await tx.execute(f"insert into {ledger} values (1)")
            return "paid"

        return await ctx.transaction("debit", debit)

    done = await work(handler, dies=("after", "claims.transact"))

    assert done.output() == "paid"
    assert await count(store, ledger) == 1


async def test_a_worker_that_dies_after_it_took_a_signal_has_it_on_record(work):
    async def handler(ctx, params):
        return [await ctx.wait_for("go"), await ctx.wait_for("go")]

    done = await work(handler, dies=("after", "claims.take_signal"), signals=[("go", 1), ("go", 2)])

    assert done.output() == [1, 2]


async def test_a_worker_that_dies_after_it_started_a_child_has_started_one(store, work):
    async def handler(ctx, params):
        return (await ctx.spawn("child")).run_id

    done = await work(handler, dies=("after", "claims.spawn"))

    assert done.status == "SUCCESS"
    assert len(await pgqrs.workflow("child").runs(store)) == 1


async def test_a_step_is_on_record_with_what_it_emits_or_not_at_all(store, work):
    async def handler(ctx, params):
        return await ctx.step("ship", ship, ctx)

    async def ship(ctx):
        await ctx.emit("order.shipped", 1)
        return "shipped"

    done = await work(handler, dies=("sql", "insert_outbox"))

    assert done.output() == "shipped"
    assert [event.type for event in await pgqrs.admin(store).outbox.unpublished()] == ["order.shipped"]


async def test_a_run_that_cannot_be_written_whole_is_not_there(store):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    with faults.recorded() as points:
        await flow.trigger(1).execute(store)
    before = await flow.runs(store)

    for point in {point for point in points if point.phase == "sql" and "insert" in point.name}:
        with faults.injected(faults.at(*point, gone)), pytest.raises(Gone):
            await flow.trigger(2).execute(store)

    assert [run.run_id for run in await flow.runs(store)] == [run.run_id for run in before]
