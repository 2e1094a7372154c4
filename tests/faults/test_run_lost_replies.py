"""PostgreSQL: what was done for a run has committed, the reply was lost; its executor goes on as if it had come."""

import pytest

import pgqrs
from pgqrs.db.queries import Query

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
