"""Children: their parent sleeps until the last of them has ended."""

import pytest

import pgqrs


async def test_a_parent_of_many_is_woken_once(store):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    passes = []

    async def handler(ctx, n: int):
        if n:
            return n
        passes.append(n)
        return await ctx.map("flow", [1, 2, 3, 4])

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(1).create(store)
    run_id = await flow.trigger(0).execute(store)
    await worker.run_until_idle()

    assert (await flow.get_run(run_id, store)).output() == [1, 2, 3, 4]
    assert len(passes) == 2
    await worker.close()


async def test_a_child_knows_its_parent(store):
    await store.create_workflow("flow")
    await store.create_workflow("child")

    async def handler(ctx, params):
        return (await ctx.spawn("child")).run_id

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run_id = await pgqrs.workflow("flow").trigger().execute(store)
    await worker.run_until_idle()
    [child] = await pgqrs.workflow("child").runs(store)

    assert child.parent_run_id == run_id
    await worker.close()


@pytest.mark.parametrize("verb", ["map", "spawn"])
async def test_children_are_checked_before_any_worker_has_served_them(store, verb):
    """The finding: in a direct call the children that fit were made, and so was the one that could not run."""

    @pgqrs.workflow(name="doubled")
    async def doubled(n: int) -> int:
        return 2 * n

    @pgqrs.workflow(name="doubling")
    async def doubling(ctx) -> None:
        await (ctx.map(doubled, [1, "two"]) if verb == "map" else ctx.spawn("doubled", "two"))

    with pytest.raises(pgqrs.InvalidArguments, match="workflow 'doubled': 'n' must be an int, got 'two'"):
        await doubling.run(store=store)

    assert await doubled.runs(store) == []


@pytest.mark.parametrize("how", ["result", "map", "nested call", "cancelled"])
async def test_a_parent_that_does_not_catch_its_childs_failure_ends_with_it_at_once(store, clock, how):
    """Another attempt would find the same end, however many are left."""
    begun = []

    @pgqrs.workflow(name="failing")
    async def failing(ctx: pgqrs.Context) -> None:
        if how == "cancelled":
            await ctx.wait_for("never")
        raise pgqrs.PermanentError("no space left")

    @pgqrs.workflow(name="parent")
    async def parent(ctx: pgqrs.Context) -> None:
        begun.append(ctx.attempt)
        match how:
            case "map":
                await ctx.map(failing, [None, None])
            case "nested call":
                await failing()
            case _:
                await (await ctx.spawn(failing)).result()

    worker = await pgqrs.worker("w").workflows([parent, failing]).create(store)
    run = await parent.get_run(await parent.trigger(max_attempts=5).execute(store), store)
    await worker.run_until_idle()
    if how == "cancelled":
        [child] = await failing.runs(store)
        await failing.cancel(child.run_id, store)
    await worker.run_until_idle()
    await run.refresh()
    await worker.close()

    assert (run.status, run.attempt) == ("ERROR", 1)
    assert set(begun) == {1}
