"""Steps side by side and in loops are the same ones in a replay."""

import asyncio

import pytest

import pgqrs

# -- races ----------------------------------------------------------------------------------------------


@pytest.mark.row("B2.12")
async def test_a_race_of_steps_has_the_same_winner_in_a_replay(store, clock):
    """Both results are recorded then: the handler gets them one after the other, as in the first pass."""
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    slow_may_end = asyncio.Event()

    async def handler(ctx):
        async def racing(name):
            await ctx.step(name, quick if name == "quick" else slow)
            return name

        tasks = [asyncio.create_task(racing(name)) for name in ("slow", "quick")]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = next(task.result() for task in tasks if task in done)
        await ctx.step(f"after {winner}", slow_may_end.set)
        await asyncio.gather(*tasks)
        await ctx.sleep(60)

    async def quick():
        pass

    async def slow():
        await slow_may_end.wait()

    run_id = await flow.trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    clock.advance(60)
    await worker.run_until_idle()
    await worker.close()
    run = await flow.get_run(run_id, store)

    steps = [step.step_id for step in await flow.steps(run_id, store)]

    assert run.status == "SUCCESS"
    assert "after quick" in steps
    assert "after slow" not in steps


@pytest.mark.row("B2.13")
async def test_a_step_in_a_loop_has_a_number_of_its_own_each_time(store):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")

    async def handler(ctx):
        return [await ctx.step("fetch", lambda n=n: n) for n in range(3)]

    run_id = await flow.trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    run = await flow.get_run(run_id, store)

    assert run.output() == [0, 1, 2]
    assert [step.step_id for step in await run.steps()] == ["fetch", "fetch#2", "fetch#3"]
