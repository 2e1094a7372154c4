"""Values that cannot be stored, or cannot be read back: they fail their own run and no other."""

import pytest

import pgqrs
from pgqrs.db.queries import Query

# JSON, and yet nothing that we have written: a tag that nobody knows how to read.
UNREADABLE = '{"$datetime": "yesterday"}'


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


async def edited(store, sql):
    await store.database.execute(Query("edit", sql))


async def worked(store, handler):
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()


async def returns(ctx, value):
    return value


async def sleeps(ctx, value):
    done = await ctx.step("make", lambda: value)
    await ctx.sleep(60)
    return done


@pytest.mark.row("B7.9")
async def test_a_run_whose_input_cannot_be_read_fails_and_the_others_go_on(store, flow):
    bad, good = await flow.trigger_many([1, 2]).execute(store)
    await edited(store, f"update pgqrs_workflow_runs set input = '{UNREADABLE}' where run_id = {bad}")

    await worked(store, returns)

    failed = await flow.get_run(bad, store)
    assert failed.status == "ERROR"
    assert failed.last_error.startswith("SerializationError")
    assert (await flow.get_run(good, store)).output() == 2
    assert len(await flow.runs(store)) == 2


@pytest.mark.row("B7.9")
async def test_a_run_whose_recorded_step_cannot_be_read_is_parked_and_the_others_continue(store, flow, clock):
    bad, good = await flow.trigger_many([1, 2]).execute(store)
    await worked(store, sleeps)
    await edited(store, f"update pgqrs_workflow_steps set output = '{UNREADABLE}' where run_id = {bad}")
    clock.advance(60)

    await worked(store, sleeps)

    parked = await flow.get_run(bad, store)
    assert parked.status == "PAUSED"
    assert "cannot be read any more" in parked.waiting_for
    assert (await flow.get_run(good, store)).output() == 2


@pytest.mark.row("B7.9")
async def test_what_cannot_be_read_in_a_list_is_shown_as_it_is_stored(store, flow):
    bad, good = await flow.trigger_many([1, 2], attributes={"customer": 7}).execute(store)
    await worked(store, returns)
    for column in ("input", "output", "attributes"):
        await edited(store, f"update pgqrs_workflow_runs set {column} = '{UNREADABLE}' where run_id = {bad}")

    found = await flow.runs(store)
    searched = await pgqrs.admin(store).runs("workflow:flow")

    assert {run.run_id for run in found} == {summary.run_id for summary in searched} == {bad, good}
    with pytest.raises(pgqrs.SerializationError):
        next(run for run in found if run.run_id == bad).output()
    assert next(run for run in found if run.run_id == good).output() == 2


@pytest.mark.row("B7.9")
async def test_a_parent_whose_childs_result_cannot_be_read_fails_and_the_worker_goes_on(store, flow):
    await store.create_workflow("child")

    async def parent(ctx, value):
        child = await ctx.spawn("child", value)
        return await child.result()

    run_id = await flow.trigger(1).execute(store)
    await worked(store, parent)
    worker = await pgqrs.consumer("c", 0, "child").handler(returns).create(store)
    await worker.run_until_idle()
    await worker.close()
    await edited(store, f"update pgqrs_workflow_runs set output = '{UNREADABLE}' where parent_run_id = {run_id}")
    await worked(store, parent)
    other = await flow.trigger(2).execute(store)
    await worked(store, returns)

    assert (await flow.get_run(run_id, store)).status == "ERROR"
    assert (await flow.get_run(other, store)).output() == 2


async def returns_it(ctx, value):
    return value


async def step_returns_it(ctx, value):
    return await ctx.step("make", lambda: value)


@pytest.mark.row("B1.16", "B7.7")
@pytest.mark.parametrize("value", [object(), "x" * 3_000_000], ids=["unknown", "too large"])
@pytest.mark.parametrize("where", [returns_it, step_returns_it], ids=["result", "step"])
async def test_a_result_that_cannot_be_stored_fails_its_run_at_once_and_no_other(store, flow, where, value):
    async def handler(ctx, n: int):
        return await where(ctx, value if n == 0 else n)

    bad, good = await flow.trigger_many([0, 1]).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    failed = await flow.get_run(bad, store)

    assert failed.status == "ERROR"
    whose = "the result of step 'make': " if where is step_returns_it else "the result of workflow 'flow': "
    assert failed.last_error.startswith((f"SerializationError: {whose}", f"PayloadTooLarge: {whose}"))
    assert (await flow.get_run(good, store)).output() == 1
    assert await store.database.fetch(Query("left", "select 1 from pgqrs_messages")) == []
    if where is step_returns_it:
        assert [step.status for step in await failed.steps()] == ["ERROR"]
