"""Handlers at Python's recursion limit: a RecursionError is theirs, and nothing hangs."""

import asyncio
import inspect
import sys

import pytest

import pgqrs


async def _work(tx):
    return 1


VERBS = {
    "step": lambda ctx: ctx.step("s", lambda: 1),
    "sleep": lambda ctx: ctx.sleep(1),
    "wait": lambda ctx: ctx.wait_for("x", timeout=1),
    "transaction": lambda ctx: ctx.transaction("t", _work),
    "emit": lambda ctx: ctx.emit("order.paid", {}),
    "spawn": lambda ctx: ctx.spawn("flow", 0),
    "map": lambda ctx: ctx.map("flow", [0, 0]),
    "first": lambda ctx: ctx.first(ctx.sleep(1), ctx.wait_for("x")),
    "gather": lambda ctx: asyncio.gather(ctx.step("a", lambda: 1), ctx.step("b", lambda: 1)),
    "task": lambda ctx: asyncio.create_task(ctx.step("c", lambda: 1)),
    "progress": lambda ctx: ctx.progress(1, 2, "half"),
}

# At each level the run would be put to rest, some hundred times.
WAITS = {"sleep", "wait", "map", "first"}
# The parts of these were called, and are not awaited when there is no room for the whole.
SEVERAL = {"gather", "task", "first"}


async def finished(worker, clock, run, rounds=8):
    for _ in range(rounds):
        await asyncio.wait_for(worker.run_until_idle(), 60)
        await run.refresh()
        if run.status in ("SUCCESS", "ERROR"):
            return
        clock.advance(3600)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("verb", sorted(VERBS.keys() - WAITS))
async def test_recursion_without_an_end_fails_the_run_with_the_error_of_python(store, flow, clock, verb):
    async def endless(ctx, depth):
        await VERBS[verb](ctx)
        return await endless(ctx, depth + 1)

    async def handler(ctx, params: int | None = None):
        if params is None:
            await endless(ctx, 0)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run = await flow.get_run(await flow.trigger(max_attempts=1).execute(store), store)
    await finished(worker, clock, run)
    await worker.close()

    assert run.status == "ERROR"
    assert run.last_error.startswith("RecursionError: maximum recursion depth exceeded")


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("verb", sorted(VERBS.keys() - SEVERAL))
async def test_a_verb_near_the_limit_works_or_raises_at_every_depth(store, flow, clock, verb):
    passes = []

    async def down(ctx, depth):
        if depth:
            return await down(ctx, depth - 1)
        return await VERBS[verb](ctx)

    async def handler(ctx, params: int | None = None):
        if params is not None:
            return None
        passes.append(seen := [])
        # What runs the tests has frames below it, too.
        limit = sys.getrecursionlimit() - len(inspect.stack(0))
        for depth in [limit - 200, *range(limit - 120, limit, 3), limit + 5]:
            try:
                await down(ctx, depth)
            except RecursionError:
                seen.append(False)
            except pgqrs.WaitTimeout:
                seen.append(True)
            else:
                seen.append(True)
        return await ctx.step("after", lambda: seen)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run = await flow.get_run(await flow.trigger(max_attempts=1).execute(store), store)
    await finished(worker, clock, run, rounds=60)
    await worker.close()

    assert run.status == "SUCCESS", run.last_error
    seen = run.output(list[bool])
    assert seen[0]
    assert seen == sorted(seen, reverse=True)
    assert not seen[-1]
    # Each pass got as far as it did with the same answers.
    assert all(each == seen[: len(each)] for each in passes)
