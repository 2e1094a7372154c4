"""Soft delete: out of sight, in nobody's hands, its key free, and back again."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.runs import claims, settlement
from pgqrs.db.runs.records import Ended, RunWrite
from pgqrs.db.tables import queues
from pgqrs.db.tables.messages import Source
from pgqrs.types import RunStatus


async def handler(ctx, params):
    return params


async def claim(store, batch=1):
    queue_id = (await queues.get(store.database, "flow")).queue_id
    return await claims.claim(store.database, [Source(queue_id, 30.0)], worker_id=1, batch=batch)


async def test_a_deleted_run_is_never_leased(store, flow, run, clock):
    run_id = await flow.trigger(1).execute(store)
    await flow.delete(run_id, store, reason="by mistake")

    clock.advance(365 * 86400)
    deleted = await run(handler, run_id=run_id)

    assert deleted.status == "PENDING"
    assert deleted.deleted_at is not None
    assert deleted.delete_reason == "by mistake"
    assert await flow.runs(store) == []


async def test_a_restored_run_goes_on_where_it_was(store, flow, run, clock):
    soon = await flow.trigger("soon").execute(store)
    later = await flow.trigger("later", delay=3600).execute(store)
    for run_id in (soon, later):
        await flow.delete(run_id, store)
        clock.advance(60)
        await flow.restore(run_id, store)

    assert (await run(handler, run_id=soon)).output() == "soon"
    assert (await run(handler, run_id=later)).status == "PENDING"
    clock.advance(3600)
    assert (await run(handler, run_id=later)).output() == "later"


@pytest.mark.row("B8.3")
async def test_whoever_runs_a_deleted_run_writes_nothing(store, flow, run):
    run_id = await flow.trigger("x").execute(store)
    [held] = await claim(store)
    await flow.delete(run_id, store)

    assert await settlement.commit(store.database, [RunWrite(held.fence, end=Ended(RunStatus.SUCCESS))]) == set()
    await flow.restore(run_id, store)

    assert (await flow.get_run(run_id, store)).status == "PENDING"
    done = await run(handler, run_id=run_id)
    assert (done.output(), done.attempt) == ("x", 1)


async def test_a_run_that_a_person_paused_is_still_paused_when_it_is_restored(store, flow, run, clock):
    run_id = await flow.trigger("x").execute(store)
    await flow.pause(run_id, store)
    await flow.delete(run_id, store)
    await flow.restore(run_id, store)

    clock.advance(86400)
    assert (await run(handler, run_id=run_id)).status == "PAUSED"
    await flow.resume(run_id, store)
    assert (await run(handler, run_id=run_id)).output() == "x"


@pytest.mark.parametrize("verb", ["pause", "resume", "restart", "reset"])
async def test_a_deleted_run_must_be_restored_first(store, flow, verb):
    run_id = await flow.trigger().execute(store)
    await flow.delete(run_id, store)

    with pytest.raises(pgqrs.InvalidTransition, match="restore"):
        await getattr(flow, verb)(run_id, store)
    with pytest.raises(pgqrs.InvalidTransition, match="restore"):
        await flow.signal(run_id, store, "go")


async def test_a_deleted_run_can_be_cancelled(store, flow):
    run_id = await flow.trigger().execute(store)
    await flow.delete(run_id, store)
    await flow.cancel(run_id, store)
    await flow.restore(run_id, store)

    assert (await flow.get_run(run_id, store)).status == "CANCELLED"


async def test_deleting_twice_changes_nothing_and_restoring_twice_is_refused(store, flow):
    run_id = await flow.trigger().execute(store)
    await flow.delete(run_id, store, reason="first")
    await flow.delete(run_id, store, reason="second")
    assert (await flow.get_run(run_id, store)).delete_reason == "first"

    await flow.restore(run_id, store)
    with pytest.raises(pgqrs.InvalidTransition, match="not deleted"):
        await flow.restore(run_id, store)


async def test_a_run_whose_key_has_gone_to_another_cannot_be_restored(store, flow):
    old = await flow.trigger(1, idempotency_key="k").execute(store)
    await flow.delete(old, store)
    new = await flow.trigger(2, idempotency_key="k").execute(store)

    with pytest.raises(pgqrs.IdempotencyConflict) as caught:
        await flow.restore(old, store)

    assert caught.value.run_id == new
    assert (await flow.get_run(old, store)).deleted_at is not None


@pytest.mark.row("B8.13")
async def test_whoever_waits_for_a_deleted_run_is_told(live_store):
    await live_store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    run = await flow.get_run(await flow.trigger().execute(live_store), live_store)
    waiting = asyncio.create_task(run.result(timeout=60))
    await asyncio.sleep(0)

    await flow.delete(run.run_id, live_store, reason="not wanted")

    with pytest.raises(pgqrs.RunDeleted, match="not wanted"):
        await waiting


async def test_the_result_of_a_deleted_run_that_had_ended_is_still_there(store, flow, run):
    done = await run(handler, "x")
    await flow.delete(done.run_id, store)

    assert await (await flow.get_run(done.run_id, store)).result() == "x"


async def test_a_parent_is_told_that_its_child_was_deleted(store, flow, run, clock):
    await store.create_workflow("child")

    async def parent(ctx, params):
        child = await ctx.spawn("child", 1)
        try:
            return await child.result()
        except pgqrs.RunCancelled as error:
            return str(error)

    waiting = await run(parent)
    [child] = await pgqrs.workflow("child").runs(store)
    await pgqrs.workflow("child").delete(child.run_id, store, reason="not wanted")
    done = await run(parent, run_id=waiting.run_id)

    assert done.status == "SUCCESS"
    assert "not wanted" in done.output()


async def test_verbs_of_another_workflow_do_not_know_the_run(store, flow):
    run_id = await flow.trigger().execute(store)
    await store.create_workflow("other")
    other = pgqrs.workflow("other")

    for verb in (other.cancel, other.pause, other.resume, other.restart, other.reset, other.delete, other.steps):
        with pytest.raises(pgqrs.RunNotFound, match="workflow 'flow'"):
            await verb(run_id, store)
    assert (await flow.get_run(run_id, store)).status == "PENDING"


async def test_a_restored_parent_sees_that_its_children_have_ended(store, flow):
    @pgqrs.workflow(name="child")
    async def child(ctx, params):
        return params

    @pgqrs.workflow(name="flow")
    async def parent(ctx, params):
        return await (await ctx.spawn("child", params)).result()

    await store.create_workflow("child")
    run_id = await flow.trigger(5).execute(store)
    first = await pgqrs.worker("w1").workflows({"flow": parent}).create(store)
    await first.run_until_idle()
    await first.close()
    await flow.delete(run_id, store)
    second = await pgqrs.worker("w2").workflows({"flow": parent, "child": child}).create(store)
    await second.run_until_idle()
    await flow.restore(run_id, store)

    await second.run_until_idle()
    await second.close()

    assert (await flow.get_run(run_id, store)).output() == 5


@pytest.mark.backends("postgres")
async def test_a_key_that_is_taken_while_its_run_is_restored_is_a_conflict(store, flow, config):
    import asyncpg

    run_id = await flow.trigger(1, idempotency_key="k").execute(store)
    await flow.delete(run_id, store)
    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    looked = asyncio.Event()
    with faults.injected(faults.at("sql", "mark_restored", looked.set)):
        async with connection.transaction():
            await pgqrs.using(connection, schema=config.schema).trigger("flow", 1, idempotency_key="k")
            restoring = asyncio.create_task(flow.restore(run_id, store))
            await asyncio.wait_for(looked.wait(), 10)
    await connection.close()

    with pytest.raises(pgqrs.IdempotencyConflict, match="'k'"):
        await restoring
    assert (await flow.get_run(run_id, store)).deleted_at is not None
