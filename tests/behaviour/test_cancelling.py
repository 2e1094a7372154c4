"""Cancelling: the canceller's word is final, and whoever executes the run hears of it soon."""

import asyncio
import os

import pytest

import pgqrs

# A third of the lease is 10 s. Through a transaction pooler no hint comes from elsewhere, and the heartbeat has to do.
BOUND_SECONDS = 15 if os.environ.get("PGQRS_TEST_PGBOUNCER") else 5


@pytest.fixture
async def elsewhere(live_store, connect):
    """Another process's store, as far as the backend allows."""
    return live_store if live_store.config.backend == "turso" else await connect(clock=pgqrs.DatabaseClock())


async def running(store, handler):
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    polling = asyncio.create_task(worker.poll_forever())
    run_id = await pgqrs.workflow("flow").trigger().execute(store)
    return run_id, worker, polling


async def test_a_handler_is_told_long_before_its_next_heartbeat(live_store, elsewhere):
    began, told = asyncio.Event(), asyncio.Event()

    async def handler(ctx, params):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.cancelled
            told.set()

    run_id, worker, polling = await running(live_store, handler)
    await began.wait()
    await pgqrs.workflow("flow").cancel(run_id, elsewhere, reason="enough", actor="ann")
    async with asyncio.timeout(BOUND_SECONDS):
        await told.wait()
    worker.stop()
    await polling

    run = await pgqrs.workflow("flow").get_run(run_id, live_store)
    assert (run.status, run.last_error) == ("CANCELLED", "enough")


@pytest.mark.row("B8.1")
async def test_no_step_begins_after_the_worker_has_heard(live_store, elsewhere):
    began, heard, stepped = asyncio.Event(), asyncio.Event(), []

    async def handler(ctx, params):
        began.set()
        # A handler that looks away from its cancellation, and asks on demand.
        while not ctx.cancelled:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                heard.set()
        await ctx.step("after", lambda: stepped.append(1))

    run_id, worker, polling = await running(live_store, handler)
    await began.wait()
    await pgqrs.workflow("flow").cancel(run_id, elsewhere)
    async with asyncio.timeout(BOUND_SECONDS):
        await heard.wait()
    worker.stop()
    await polling

    assert stepped == []
    assert (await pgqrs.workflow("flow").get_run(run_id, live_store)).status == "CANCELLED"


async def test_a_plain_handler_asks_on_demand(live_store, elsewhere):
    began, asked = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def handler(ctx, params):
        import time

        loop.call_soon_threadsafe(began.set)
        while not ctx.cancelled:
            time.sleep(0.01)
        loop.call_soon_threadsafe(asked.set)

    run_id, worker, polling = await running(live_store, handler)
    await began.wait()
    await pgqrs.workflow("flow").cancel(run_id, elsewhere)
    async with asyncio.timeout(BOUND_SECONDS):
        await asked.wait()
    worker.stop()
    await polling


async def test_the_worker_does_not_change_the_status_of_a_cancelled_run(live_store):
    began, go_on = asyncio.Event(), asyncio.Event()

    async def handler(ctx, params):
        async def body():
            began.set()
            await go_on.wait()
            return 1

        return await ctx.step("one", body)

    run_id, worker, polling = await running(live_store, handler)
    await began.wait()
    flow = pgqrs.workflow("flow")
    await flow.cancel(run_id, live_store)
    go_on.set()
    worker.stop()
    await polling

    assert (await flow.get_run(run_id, live_store)).status == "CANCELLED"
    assert await flow.steps(run_id, live_store) == []


async def test_what_has_ended_cannot_be_cancelled_and_cancelling_twice_is_no_error(store, flow, run):
    async def handler(ctx, params):
        return 1

    done = await run(handler)
    with pytest.raises(pgqrs.InvalidTransition, match="SUCCESS"):
        await flow.cancel(done.run_id, store)

    pending = await flow.trigger().execute(store)
    await flow.cancel(pending, store, reason="first")
    await flow.cancel(pending, store, reason="second")
    assert (await flow.get_run(pending, store)).last_error == "first"
