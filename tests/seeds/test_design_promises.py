"""What DESIGN section 6 promises beyond the seeds' examples, where running the examples raised doubts."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

import pgqrs


@pytest.fixture
def admin(live_store):
    return pgqrs.admin(live_store)


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.fixture
async def work(store, flow):
    """Works with a handler until nothing is due; gives the run."""

    async def until_idle(handler, run_id):
        worker = await pgqrs.consumer("worker-1", 8080, "flow").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()
        return await flow.get_run(run_id, store)

    return until_idle


async def until_paused(store, run_id):
    while (run := await pgqrs.workflow("waiting").get_run(run_id, store)).status != "PAUSED":
        await asyncio.sleep(0.01)
    return run


@pytest.fixture
def waiting():
    @pgqrs.workflow
    async def waiting(ctx: pgqrs.PyWorkflow) -> str:
        return await ctx.wait_for("go")

    return waiting


async def test_a_direct_call_that_waits_goes_on_at_the_signal(live_store, admin, waiting):
    ctx = await admin.create_workflow("waiting")
    call = asyncio.create_task(waiting(ctx))
    await until_paused(live_store, ctx.run_id)
    await waiting.signal(ctx.run_id, live_store, "go", "went")

    assert await asyncio.wait_for(call, 20) == "went"


async def test_a_direct_call_that_waits_ends_when_its_run_is_cancelled(live_store, admin, waiting):
    ctx = await admin.create_workflow("waiting")
    call = asyncio.create_task(waiting(ctx))
    await until_paused(live_store, ctx.run_id)
    await waiting.cancel(ctx.run_id, live_store)

    with pytest.raises((pgqrs.RunCancelled, pgqrs.InvalidTransition)):
        await asyncio.wait_for(call, 10)


async def test_a_direct_call_waits_for_a_pause_wherever_it_was_raised(live_store, admin):
    answers = [pgqrs.PauseError("not yet")]

    @pgqrs.workflow
    async def waiting(ctx: pgqrs.PyWorkflow) -> str:
        if answers:
            raise answers.pop()
        return "yes"

    ctx = await admin.create_workflow("waiting")
    call = asyncio.create_task(waiting(ctx))
    await until_paused(live_store, ctx.run_id)
    await waiting.resume(ctx.run_id, live_store)

    assert await asyncio.wait_for(call, 20) == "yes"


async def test_a_plain_direct_call_may_sleep(admin):
    @pgqrs.workflow
    def sleeper(ctx: pgqrs.PyWorkflow) -> str:
        ctx.sleep(0.2)
        return "awake"

    assert await asyncio.to_thread(sleeper, await admin.create_workflow("sleeper")) == "awake"


async def test_a_paused_step_that_never_returns_by_itself_takes_any_data(store, flow, work):
    def wait_for_approval() -> NoReturn:
        raise pgqrs.PauseError("Waiting for approval")

    def wait_for_payment() -> None:
        raise pgqrs.PauseError("Waiting for payment")

    async def handler(ctx, params):
        approval = await ctx.step("wait_for_approval", wait_for_approval)
        payment = await ctx.step("wait_for_payment", wait_for_payment)
        return [approval["by"], payment["amount"]]

    run_id = await flow.trigger(None).execute(store)
    await work(handler, run_id)
    await flow.resume(run_id, store, step="wait_for_approval", data={"by": "ann"})
    await work(handler, run_id)
    await flow.resume(run_id, store, step="wait_for_payment", data={"amount": 5})
    done = await work(handler, run_id)

    assert (done.status, done.last_error) == ("SUCCESS", None)
    assert done.output() == ["ann", 5]


async def test_a_saga_that_was_interrupted_while_undoing_goes_on_undoing(store, flow, work, clock):
    undone = []

    def ship():
        raise pgqrs.PermanentError("nobody carries an anvil")

    async def handler(ctx, params):
        try:
            await ctx.step("ship", ship)
        except pgqrs.PermanentError as error:
            await ctx.step("refund", lambda: undone.append("refund"))
            await ctx.sleep(60)
            await ctx.step("release", lambda: undone.append("release"))
            return str(error)

    run_id = await flow.trigger(None).execute(store)
    await work(handler, run_id)
    clock.advance(60)
    done = await work(handler, run_id)

    assert (done.status, done.last_error) == ("SUCCESS", None)
    assert done.output() == "nobody carries an anvil"
    assert undone == ["refund", "release"]


async def test_steps_in_threads_of_a_plain_handler_replay_whichever_comes_first(store, flow, work, clock):
    """Seed 003 section 7: `[t2, t3]` maps to asyncio.gather *or threading*."""
    passes = []

    def handler(ctx, params):
        order = ["sleep", "templated"] if not passes else ["templated", "sleep"]
        passes.append(order)
        first_is_done = threading.Event()

        def first():
            value = ctx.step(order[0], lambda: order[0])
            first_is_done.set()
            return value

        def second():
            first_is_done.wait(10)
            return ctx.step(order[1], lambda: order[1])

        with ThreadPoolExecutor() as pool:  # pgqrs: ignore[PGQ106]
            done = sorted(f.result() for f in [pool.submit(first), pool.submit(second)])
        ctx.sleep(60)
        return done

    run_id = await flow.trigger(None).execute(store)
    await work(handler, run_id)
    clock.advance(60)
    done = await work(handler, run_id)

    assert (done.status, done.waiting_for) == ("SUCCESS", None)
    assert done.output() == ["sleep", "templated"]


async def test_a_step_that_is_given_the_context_may_call_a_step_too(admin):
    tries = []

    @pgqrs.step
    async def inner(ctx) -> int:
        return 1

    @pgqrs.step
    async def outer(ctx) -> int:
        return await inner(ctx) + 1

    @pgqrs.workflow
    async def nested(ctx) -> int:
        value = await outer(ctx)
        tries.append(value)
        if len(tries) == 1:
            raise RuntimeError("once")
        return value

    ctx = await admin.create_workflow("nested")
    with pytest.raises(RuntimeError, match="once"):
        await nested(ctx)

    assert await nested(ctx) == 2


@pytest.mark.row("B8.13")
async def test_a_result_is_still_waited_for_after_the_database_was_away(live_store):
    from pgqrs import faults

    def away():
        raise pgqrs.ConnectionFailed("the database is away")

    @pgqrs.workflow
    async def quick(ctx) -> int:
        return 42

    await live_store.create_workflow("quick")
    run = await quick.get_run(await quick.trigger().execute(live_store), live_store)
    worker = await pgqrs.consumer("worker-1", 8080, "quick").handler(quick).create(live_store)
    with faults.injected(faults.at("before", "runs.finished", away)):
        waiting = asyncio.create_task(run.result(timeout=20))
        await worker.run_until_idle()
        await worker.close()

        assert await waiting == 42
