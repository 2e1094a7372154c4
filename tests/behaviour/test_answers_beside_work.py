"""A person answers while the run is at work, or answers what the run did not ask for: one answer, the same in every pass."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults


@pytest.fixture
async def answered(run, store, flow, clock):
    """Works a handler off, whose step waits for `go`; meanwhile the step that it is given is answered."""

    async def answer(handler, run_id, begun, go, *, step, data, then=None):
        working = asyncio.create_task(run(handler, run_id=run_id))
        async with asyncio.timeout(30):
            await begun.wait()
            await flow.resume(run_id, store, step=step, data=data)
            if then is not None:
                await then()
            go.set()
            return await working

    return answer


async def test_a_run_that_is_answered_while_another_branch_works_does_not_sleep_on_it(run, clock, answered):
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow():
        begun.set()
        await go.wait()

    async def handler(ctx, params):
        async def work():
            await ctx.sleep(10)
            await ctx.step("slow", slow)

        return (await asyncio.gather(ctx.pause("ok?"), work()))[0]

    waiting = await run(handler)
    clock.advance(10)
    done = await answered(handler, waiting.run_id, begun, go, step="pause", data="yes")

    assert (done.status, done.waiting_for) == ("SUCCESS", None)
    assert done.output() == "yes"


@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_a_step_that_is_answered_while_its_body_runs_again_has_one_result(
    run, flow, store, clock, answered, how
):
    begun, go, seen = asyncio.Event(), asyncio.Event(), []

    async def ask():
        if not seen:
            seen.append("asked")
            raise pgqrs.PauseError("how many?")
        begun.set()
        await go.wait()
        if how == "raises":
            raise ValueError("no answer")
        return 1

    async def handler(ctx, params):
        try:
            seen.append(await ctx.step("ask", ask))
        except ValueError as error:
            seen.append(str(error))
        await ctx.sleep(60)

    waiting = await run(handler)
    await flow.resume(waiting.run_id, store)
    waiting = await answered(handler, waiting.run_id, begun, go, step="ask", data=2)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, seen) == ("SUCCESS", ["asked", 2, 2])


async def test_a_wait_that_is_answered_while_a_signal_comes_has_one_result(run, flow, store, clock, answered):
    begun, go, seen = asyncio.Event(), asyncio.Event(), []

    async def handler(ctx, params):
        seen.append(await ctx.wait_for("go"))
        seen.append(await ctx.wait_for("go"))
        await ctx.sleep(60)

    def stand_still():
        begun.set()
        return go.wait()

    waiting = await run(handler)
    run_id = waiting.run_id
    await flow.resume(run_id, store)
    with faults.injected(faults.at("before", "claims.take_signal", stand_still)):
        await answered(
            handler, run_id, begun, go, step="wait_for:go", data=1, then=lambda: flow.signal(run_id, store, "go", 2)
        )
    clock.advance(60)
    done = await run(handler, run_id=run_id)

    assert (done.status, seen) == ("SUCCESS", [1, 2, 1, 2])


@pytest.mark.parametrize("data", [None, 5, "done", ["SUCCESS"], {"a": 1}])
async def test_a_person_can_answer_in_the_place_of_a_child(run, store, flow, data):
    await store.create_workflow("child")

    async def handler(ctx, params):
        child = await ctx.spawn("child", 1)
        return await child.result()

    waiting = await run(handler)
    [step] = [each.step_id for each in await waiting.steps() if each.status == "PAUSED"]
    await flow.resume(waiting.run_id, store, step=step, data=data)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.last_error) == ("SUCCESS", None)
    assert done.output() == data


async def test_an_answer_of_another_type_fails_the_paused_step_which_a_restart_asks_again(run, store, flow, clock):
    async def ask() -> int:
        raise pgqrs.PauseError("how many?")

    caught = []

    async def handler(ctx, params):
        try:
            return await ctx.step("ask", ask)
        except pgqrs.SerializationError as error:
            caught.append(str(error))
            await ctx.sleep(60)
            raise

    waiting = await run(handler)
    await flow.resume(waiting.run_id, store, step="ask", data="lots")
    waiting = await run(handler, run_id=waiting.run_id)
    clock.advance(60)
    failed = await run(handler, run_id=waiting.run_id)
    await flow.restart(failed.run_id, store)
    again = await run(handler, run_id=failed.run_id)

    assert (failed.status, len(caught), len(set(caught))) == ("ERROR", 2, 1)
    assert "the data to resume with" in caught[0]
    assert (again.status, again.waiting_for) == ("PAUSED", "how many?")
