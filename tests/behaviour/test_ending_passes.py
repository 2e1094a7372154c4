"""A pass that the engine ends: every part of the handler ends, and a `finally` begins nothing new."""

import asyncio
import gc
import threading
import weakref
from contextlib import suppress

import pytest

import pgqrs
from pgqrs import faults


async def test_a_finally_begins_no_step_when_its_worker_is_stopped(store, flow, run):
    begun, bodies = asyncio.Event(), []

    async def stuck():
        begun.set()
        await asyncio.Event().wait()

    async def handler(ctx, params):
        try:
            await ctx.step("use", stuck if len(bodies) == 0 else lambda: bodies.append("use"))
        finally:
            await ctx.step("close", lambda: bodies.append("close"))

    run_id = await flow.trigger(None).execute(store)
    worker = await pgqrs.consumer("stopped", 0, "flow").handler(handler).create(store)
    working = asyncio.create_task(worker.run_until_idle())
    await asyncio.wait_for(begun.wait(), 60)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    await worker.close()
    bodies.append("stopped")

    ended = await run(handler, run_id=run_id)

    assert ended.status == "SUCCESS", ended.waiting_for
    assert bodies == ["stopped", "use", "close"]


async def sleeps(ctx, params):
    task = asyncio.create_task(ctx.step("beside", lambda: None))
    await ctx.sleep(3600)
    await task


async def waits_for_something_of_its_own(ctx, params):
    task = asyncio.create_task(ctx.step("beside", lambda: None))
    await asyncio.wait({asyncio.create_task(asyncio.Event().wait())})
    await task


def sleeps_plainly(ctx, params):
    ctx.gather(lambda: ctx.step("beside", lambda: None), lambda: ctx.sleep(3600))


@pytest.mark.parametrize("handler", [sleeps, waits_for_something_of_its_own, sleeps_plainly])
async def test_a_part_whose_step_cannot_be_recorded_ends_the_whole_pass(run, handler):
    """However the rest of the handler waits: else its run would be held, and its lease renewed, forever."""

    def refuse():
        raise pgqrs.SerializationError("injected: the database cannot store this")

    with faults.injected(faults.at("before", "settlement.commit", refuse)):
        ended = await asyncio.wait_for(run(handler), 60)

    assert (ended.status, ended.last_error) == (
        "ERROR",
        "SerializationError: $: injected: the database cannot store this",
    )


async def stop(worker, run_id, store):
    worker.stop()


ENDINGS = {
    "stop": stop,
    "cancel": lambda _worker, run_id, store: pgqrs.workflow("flow").cancel(run_id, store),
    "pause": lambda _worker, run_id, store: pgqrs.workflow("flow").pause(run_id, store),
    "reset": lambda _worker, run_id, store: pgqrs.workflow("flow").reset(run_id, store),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_threads_of_a_plain_handler_end_when_its_pass_is_taken_away(live_store, ending):
    """One part of it waits, another works: a thread that waits on would keep the process from ending."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def long():
        begun.set()
        may_end.wait(60)

    def handler(ctx, params):
        if begun.is_set():
            return
        try:
            ctx.gather(lambda: ctx.wait_for("never"), lambda: ctx.step("long", long))
        finally:
            ended.set()

    await live_store.create_workflow("flow")
    run_id = await pgqrs.workflow("flow").trigger(None).execute(live_store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).grace(0.1).create(live_store)
    working = asyncio.create_task(worker.poll_forever())
    await asyncio.to_thread(begun.wait, 60)

    await ENDINGS[ending](worker, run_id, live_store)
    has_ended = await asyncio.to_thread(ended.wait, 30)
    may_end.set()
    worker.stop()
    await working
    await worker.close()

    assert has_ended


# On PostgreSQL a timer of asyncpg's statement cache, begun in the handler's context, holds it for some minutes.
@pytest.mark.backends("sqlite", "turso")
async def test_a_pass_that_ended_well_is_freed_without_the_garbage_collector(run):
    """A worker has a thousand passes in a second: as garbage they would fill memory until it is collected."""
    passes = []

    async def handler(ctx, params):
        passes.append(weakref.ref(ctx._run_pass))
        await ctx.step("one", lambda: 1)
        return await ctx.step("two", lambda: 2)

    gc.collect()
    gc.disable()
    try:
        await run(handler)
        is_freed = passes[0]() is None
    finally:
        gc.enable()

    assert is_freed
