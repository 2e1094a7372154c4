"""Waits in tasks, groups and races: a run rests only when all of it waits, and continues as if it had not."""

import asyncio

import pytest

import pgqrs
from pgqrs.engine.ctx import sync_context
from pgqrs.engine.replay import suspension


@pytest.fixture
async def child(store):
    await store.create_workflow("child")
    return pgqrs.workflow("child")


@pytest.fixture
async def works(store):
    """Works on `flow` and `child` until nothing is due; gives the run."""
    workers = []

    async def work(flow, child, run_id):
        worker = (
            await pgqrs.worker("both", prefixes=["flow", "child"])
            .workflows({"flow": flow, "child": child})
            .create(store)
        )
        workers.append(worker)
        await worker.run_until_idle()
        return await pgqrs.workflow("flow").get_run(run_id, store)

    yield work
    for worker in workers:
        await worker.close()


async def test_a_step_beside_a_sleeping_task_runs_at_once(run, clock):
    effects = []

    async def handler(ctx, params):
        sleeping = asyncio.create_task(ctx.sleep(3600))
        await asyncio.sleep(0.05)
        await ctx.step("work", lambda: effects.append("work"))
        await ctx.step("more", lambda: effects.append("more"))
        await sleeping
        return "slept"

    waiting = await run(handler)

    assert (waiting.status, effects) == ("PAUSED", ["work", "more"])
    clock.advance(3600)
    assert (await run(handler, run_id=waiting.run_id)).output() == "slept"


async def test_a_task_that_is_about_to_move_does_so_before_the_run_rests(run):
    """It waits for nothing but its turn; after that comes a step, which an hour would delay."""
    effects = []

    async def handler(ctx, params):
        async def moving():
            for _ in range(5):
                await asyncio.sleep(0)
            await ctx.step("work", lambda: effects.append("work"))

        await asyncio.gather(ctx.sleep(3600), moving())

    waiting = await run(handler)

    assert (waiting.status, effects) == ("PAUSED", ["work"])


async def test_a_shielded_wait_puts_the_run_to_rest(run, clock, store):
    async def handler(ctx, params):
        await asyncio.shield(ctx.sleep(3600))
        return await asyncio.wait_for(asyncio.shield(asyncio.create_task(ctx.wait_for("go"))), None)

    waiting = await run(handler)

    assert waiting.status == "PAUSED"
    clock.advance(3600)
    assert (await run(handler, run_id=waiting.run_id)).status == "PAUSED"
    await pgqrs.workflow("flow").signal(waiting.run_id, store, "go", "went")
    assert (await run(handler, run_id=waiting.run_id)).output() == "went"


async def test_a_sleep_in_the_background_that_is_given_up_is_not_waited_for(run, clock):
    async def handler(ctx, params):
        sleeping = asyncio.create_task(ctx.sleep(3600))
        await ctx.step("work", lambda: 1)
        sleeping.cancel()
        await ctx.wait_for("go", timeout=60)

    waiting = await run(handler)

    assert waiting.waiting_for == "go"


async def test_gather_with_return_exceptions_waits_and_keeps_its_errors(run, clock, flow, store):
    def fails():
        raise ValueError("not this one")

    async def handler(ctx, params):
        async def failing():
            await ctx.step("fails", fails)

        results = await asyncio.gather(ctx.sleep(60), ctx.wait_for("go"), failing(), return_exceptions=True)
        return [type(each).__name__ for each in results]

    waiting = await run(handler)
    await flow.signal(waiting.run_id, store, "go", 1)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert waiting.status == "PAUSED"
    assert (done.status, done.output()) == ("SUCCESS", ["NoneType", "int", "ValueError"])


async def test_a_task_group_around_waits_is_unwound_and_resumed(run, clock):
    caught = []

    async def handler(ctx, params):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.sleep(60))
                group.create_task(ctx.sleep(30))
        except* Exception as group:  # noqa: BLE001 - as users write it
            caught.append(group)
        return "both"

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (waiting.status, done.output(), caught) == ("PAUSED", "both", [])


@pytest.mark.parametrize("form", ["timeout", "wait_for"])
async def test_a_deadline_of_asyncios_around_a_wait_is_refused(run, form):
    async def handler(ctx, params):
        if form == "timeout":
            async with asyncio.timeout(30):
                await ctx.wait_for("approval")
        else:
            await asyncio.wait_for(ctx.wait_for("approval"), 30)

    done = await run(handler)

    assert done.status == "ERROR"
    assert "use ctx.wait_for(..., timeout=...)" in done.last_error


async def test_a_deadline_of_asyncios_around_a_step_is_refused(run):
    async def slow():
        await asyncio.Event().wait()

    async def handler(ctx, params):
        async with asyncio.timeout(0.05):
            await ctx.step("slow", slow)

    done = await run(handler)

    assert done.status == "ERROR"
    assert "use ctx.step(..., timeout=...)" in done.last_error
    assert await done.steps() == []


async def test_the_first_wait_to_end_wins_and_stays_the_winner(run, clock, flow, store):
    async def handler(ctx, params):
        winner = await ctx.first(late=ctx.sleep(60), approved=ctx.wait_for("approval"))
        await ctx.sleep(600)
        return list(winner)

    waiting = await run(handler)
    await flow.signal(waiting.run_id, store, "approval", "ann")
    waiting = await run(handler, run_id=waiting.run_id)
    clock.advance(600)
    done = await run(handler, run_id=waiting.run_id)

    assert done.output() == ["approved", "ann"]


async def test_a_timer_wins_by_the_databases_clock_and_leaves_the_signal(run, clock, flow, store):
    async def handler(ctx, params):
        winner = await ctx.first(ctx.wait_for("approval"), ctx.sleep(60))
        later = await ctx.wait_for("approval")
        return [winner.key, winner.value, later]

    waiting = await run(handler)
    clock.advance(60)
    waiting = await run(handler, run_id=waiting.run_id)
    await flow.signal(waiting.run_id, store, "approval", "too late")
    done = await run(handler, run_id=waiting.run_id)

    assert done.output() == [1, None, "too late"]


async def test_first_refuses_what_is_no_wait(run):
    async def handler(ctx, params):
        step = ctx.step("work", lambda: 1)
        try:
            await ctx.first(step, ctx.sleep(1))
        finally:
            step.close()

    done = await run(handler, max_attempts=1)

    assert done.last_error.startswith("ConfigError: ctx.first takes waits")


async def test_any_child_that_ends_wakes_the_parent_that_races_it(store, flow, child, works, clock):
    async def parent(ctx, params):
        slow = await ctx.spawn("child", "slow")
        quick = await ctx.spawn("child", "quick")
        winner = await ctx.first(slow=slow.result(), quick=quick.result())
        return list(winner)

    async def work(ctx, pace: str) -> str:
        if pace == "slow":
            await ctx.sleep(3600)
        return pace

    run_id = await flow.trigger(None).execute(store)
    done = await works(parent, work, run_id)

    assert (done.status, done.output()) == ("SUCCESS", ["quick", "quick"])


async def test_a_parent_that_awaits_one_child_does_not_wait_for_the_others(store, flow, child, works):
    async def parent(ctx, params):
        await ctx.spawn("child", "slow")
        quick = await ctx.spawn("child", "quick")
        return await quick.result()

    async def work(ctx, pace: str) -> str:
        if pace == "slow":
            await ctx.sleep(3600)
        return pace

    run_id = await flow.trigger(None).execute(store)
    done = await works(parent, work, run_id)

    assert (done.status, done.output()) == ("SUCCESS", "quick")


async def test_map_keeps_its_window_full(store, flow, child, works, clock):
    begun = []

    async def parent(ctx, params):
        return await ctx.map("child", [60, 10, 10, 10], limit=2)

    async def work(ctx, seconds: int) -> int:
        begun.append(seconds)
        await ctx.sleep(seconds)
        return seconds

    run_id = await flow.trigger(None).execute(store)
    await works(parent, work, run_id)
    assert len(await child.runs(store)) == 2
    clock.advance(10)
    await works(parent, work, run_id)
    # The long one is still asleep, and a third has begun beside it.
    assert len(await child.runs(store)) == 3
    clock.advance(10)
    await works(parent, work, run_id)
    assert len(await child.runs(store)) == 4
    clock.advance(60)
    done = await works(parent, work, run_id)

    assert done.output() == [60, 10, 10, 10]


async def test_map_gives_every_result_and_every_error(store, flow, child, works):
    async def parent(ctx, keeps: str):
        results = await ctx.map("child", [1, 2, 3], return_exceptions=keeps == "errors")
        return [str(each) for each in results]

    async def work(ctx, n: int) -> int:
        if n != 2:
            raise pgqrs.PermanentError(f"not {n}")
        return n

    kept = await works(parent, work, await flow.trigger("errors").execute(store))
    raised = await works(parent, work, await flow.trigger("nothing", max_attempts=1).execute(store))

    assert [("not 1" in a, b, "not 3" in c) for a, b, c in [kept.output()]] == [(True, "2", True)]
    assert raised.status == "ERROR"
    assert raised.last_error.startswith("ExecutionFailed: ")
    # Both failures made it fail: a restart asks for both again.
    assert len(raised.error["steps"]) == 2


async def test_a_plain_handler_races_and_gathers_with_functions(run, clock, flow, store):
    def fails():
        raise ValueError("no")

    def handler(ctx, params):
        winner = ctx.first(lambda: ctx.sleep(60), lambda: ctx.wait_for("go"))
        results = ctx.gather(lambda: ctx.step("a", lambda: 1), lambda: ctx.step("b", fails), return_exceptions=True)
        return [winner.key, winner.value, results[0], str(results[1])]

    waiting = await run(handler)
    await flow.signal(waiting.run_id, store, "go", 7)
    done = await run(handler, run_id=waiting.run_id)

    assert waiting.status == "PAUSED"
    assert done.output() == [1, 7, 1, "no"]


async def test_a_run_rests_while_its_handler_polls_beside_a_wait(store, flow, monkeypatch):
    """A loop of `asyncio.sleep(0)` is always about to move, and would keep the signal from being taken."""
    monkeypatch.setattr(suspension, "_OUTSIDE_SECONDS", 0.05)
    monkeypatch.setattr(suspension, "_GRACE_SECONDS", 0.05)

    async def handler(ctx):
        answers = []

        async def poll():
            while not answers:
                await asyncio.sleep(0)

        async def approve():
            answers.append(await ctx.wait_for("approval"))

        await asyncio.gather(poll(), approve())
        return answers

    run_id = await flow.trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    async with asyncio.timeout(30):
        await worker.run_until_idle()
        paused = await flow.get_run(run_id, store)
        await flow.signal(run_id, store, "approval", "yes")
        await worker.run_until_idle()
    await worker.close()
    run = await flow.get_run(run_id, store)

    assert (paused.status, paused.waiting_for) == ("PAUSED", "approval")
    assert (run.status, run.output()) == ("SUCCESS", ["yes"])


async def test_a_map_fills_all_its_places_after_a_replay(store, clock, works):
    """Its children began one by one: a replay finds one record for each, and room for more than one."""

    async def parent(ctx):
        return await ctx.map("child", [10, 20, 20, 1000, 1, 1, 1, 1], limit=3)

    async def sleeper(ctx, seconds: int):
        await ctx.sleep(seconds)
        return seconds

    for name in ("flow", "child"):
        await store.create_workflow(name)
    run_id = await pgqrs.workflow("flow").trigger().execute(store)
    for seconds in (0, 10, 10, 10, 10):
        clock.advance(seconds)
        await works(parent, sleeper, run_id)
    children = await pgqrs.workflow("child").runs(store)
    # Five short ones and two that took twenty seconds at most: only the long one is left after forty.
    left = [child for child in children if child.status != "SUCCESS"]

    assert (len(children), len(left)) == (8, 1)


async def test_a_part_whose_threads_have_ended_goes_on_before_the_run_rests(run, monkeypatch):
    effects = []
    loop = asyncio.get_running_loop()

    async def turns():
        for _ in range(20):
            await asyncio.sleep(0)

    class SlowToWake:
        """A thread that is joined only after the event loop has looked at the run."""

        def __init__(self, thread):
            self._thread = thread

        def result(self):
            value = self._thread.result()
            asyncio.run_coroutine_threadsafe(turns(), loop).result()
            return value

    start_thread = sync_context.start_thread
    monkeypatch.setattr(sync_context, "start_thread", lambda *given: SlowToWake(start_thread(*given)))

    def handler(ctx, params):
        def works():
            ctx.gather(lambda: None)
            ctx.step("work", effects.append, "work")

        ctx.gather(lambda: ctx.sleep(3600), works)

    waiting = await run(handler)

    assert (waiting.status, effects) == ("PAUSED", ["work"])
