"""Tasks that the library makes for itself are no branches of the handler in which they begin."""

import asyncio

import pytest

import pgqrs


def steps_of(run_id, store):
    return pgqrs.workflow("flow").steps(run_id, store)


@pytest.fixture
async def worker(store):
    """Serves `flow`, whose handler is given, and `child`, which answers 7."""
    made = []

    async def serve(handler):
        for name in ("flow", "child"):
            await store.create_workflow(name)
        worker = await pgqrs.worker("w").workflows({"flow": handler, "child": lambda ctx: 7}).create(store)
        made.append(worker)
        return worker

    yield serve
    for each in made:
        await each.close()


def branches(ctx):
    """Two branches of a handler, each with a step."""

    async def branch(name, value):
        return await ctx.step(name, lambda: value)

    return asyncio.gather(branch("a", 1), branch("b", 2))


async def test_a_hint_that_a_spawn_sends_does_not_number_the_branches(store, worker):
    async def handler(ctx):
        child = await ctx.spawn("child")
        both = await branches(ctx)
        return [*both, await child.result()]

    serving = await worker(handler)
    run_id = await pgqrs.workflow("flow").trigger(max_attempts=1).execute(store)
    await serving.run_until_idle()
    run = await pgqrs.workflow("flow").get_run(run_id, store)

    assert (run.status, run.output()) == ("SUCCESS", [1, 2, 7])
    assert {step.step_id for step in await steps_of(run_id, store)} >= {"a@1", "b@2"}


async def test_a_run_triggered_by_the_handler_does_not_number_the_branches(store, clock, worker):
    async def handler(ctx):
        await pgqrs.workflow("child").trigger(idempotency_key="once").execute(store)
        both = await branches(ctx)
        await ctx.sleep(60)
        return both

    serving = await worker(handler)
    run_id = await pgqrs.workflow("flow").trigger(max_attempts=1).execute(store)
    for _ in range(2):
        await serving.run_until_idle()
        clock.advance(60)
    run = await pgqrs.workflow("flow").get_run(run_id, store)

    assert (run.status, run.output()) == ("SUCCESS", [1, 2])
    assert {step.step_id for step in await steps_of(run_id, store)} >= {"a@1", "b@2"}


async def test_the_look_for_results_that_a_handler_began_does_not_end_with_it(store):
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(ctx):
        waiting = asyncio.create_task(child.result())
        begun.set()
        await may_end.wait()
        waiting.cancel()
        return "ended"

    for name in ("flow", "child"):
        await store.create_workflow(name)
    child = await pgqrs.workflow("child").get_run(await pgqrs.workflow("child").trigger().execute(store), store)
    await pgqrs.workflow("flow").trigger().execute(store)
    parent = await pgqrs.consumer("parent", 0, "flow").handler(handler).create(store)
    working = asyncio.create_task(parent.run_until_idle())
    await begun.wait()
    other = await pgqrs.workflow("child").get_run(child.run_id, store)
    waiting = asyncio.create_task(other.result(timeout=30))
    while len(store.results._waiting.get(child.run_id, ())) < 2:
        await asyncio.sleep(0)
    may_end.set()
    await working
    await parent.close()
    serving = await pgqrs.consumer("child", 0, "child").handler(lambda ctx: 7).create(store)
    await serving.run_until_idle()
    await serving.close()

    assert await waiting == 7
