"""PostgreSQL: what was done for a run has committed, the reply was lost; its executor goes on as if it had come."""

import asyncio

import pytest

import pgqrs
from pgqrs.db.queries import Query
from pgqrs.db.runs import claims, settlement
from pgqrs.db.runs.records import Ended, RunWrite
from pgqrs.db.tables import workers
from pgqrs.types import RunStatus

pytestmark = pytest.mark.backends("postgres")


async def test_a_transaction_whose_reply_was_lost_is_carried_out_once(store, config, lose_commit):
    ledger = f'"{config.schema}".ledger'
    await store.database.execute(Query("ledger", f"create table {ledger} (amount integer)"))

    @pgqrs.workflow(name="pay")
    async def pay(ctx):
        async def debit(tx):
            await tx.execute(f"insert into {ledger} values (1)")
            return "paid"

        return await ctx.transaction("debit", debit)

    context = await pgqrs.admin(store).create_workflow("pay", None)
    lose_commit("record_steps")

    assert await pay(context) == "paid"
    assert len(await store.database.fetch(Query("rows", f"select * from {ledger}"))) == 1


async def test_an_end_whose_reply_was_lost_is_the_callers(store, lose_commit):
    @pgqrs.workflow(name="answer")
    async def answer(ctx):
        return 42

    context = await pgqrs.admin(store).create_workflow("answer", None)
    lose_commit("settle")

    assert await answer(context) == 42


async def test_an_end_whose_reply_was_lost_is_told_from_one_that_came_too_late(store, lose_commit):
    await store.create_workflow("answer")
    run_id = await pgqrs.workflow("answer").trigger(None).execute(store)
    worker_id = await workers.register(store.database, queue_id=None, name="w", port=0, info={})
    claim = await claims.claim_run(store.database, run_id, worker_id=worker_id, lease_seconds=30)
    end = [RunWrite(claim.fence, end=Ended(RunStatus.SUCCESS, output="42"))]
    lose_commit("settle")

    assert await settlement.commit(store.database, end) == {claim.fence}
    assert await settlement.commit(store.database, end) == set()


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_direct_call_whose_beginning_was_not_heard_of_has_one_run_and_does_not_wait(store, lose_commit, key):
    bodies = []

    @pgqrs.workflow(name="once")
    async def once() -> int:
        bodies.append(1)
        return 42

    lose_commit("register_worker")

    async with asyncio.timeout(20):
        assert await once.run(key=key, store=store) == 42
    assert [run.status for run in await once.runs(store)] == ["SUCCESS"]
    assert bodies == [1]
    assert await pgqrs.admin(store).workers() == []


async def test_a_direct_call_whose_lease_was_not_heard_of_leases_once_more(store, lose_commit):
    @pgqrs.workflow(name="once")
    async def once() -> int:
        return 42

    await store.create_workflow("once")
    run_id = await once.trigger(idempotency_key="k").execute(store)
    lose_commit("lease_due_runs")

    async with asyncio.timeout(20):
        assert await once.run(key="k", store=store) == 42
    assert (await once.get_run(run_id, store)).attempt == 1
