"""What people write by mistake, or at the edge, is refused with the way out, and never hangs or passes silently."""

import asyncio
import gc
import itertools
import threading
import weakref

import pytest

import pgqrs
from pgqrs import faults

VERBS = {
    "sleep": lambda ctx: ctx.sleep(1),
    "wait_for": lambda ctx: ctx.wait_for("go"),
    "pause": lambda ctx: ctx.pause("ask"),
    "spawn": lambda ctx: ctx.spawn("child", 1),
    "map": lambda ctx: ctx.map("child", [1]),
    "step": lambda ctx: ctx.step("inner", lambda: 1),
    "transaction": lambda ctx: ctx.transaction("inner", lambda tx: tx.fetch("select 1")),
    "gather": lambda ctx: ctx.gather(lambda: ctx.sleep(1)),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_verb_inside_the_body_of_a_step_is_refused_with_the_way_out(run, store, verb, kind):
    await store.create_workflow("child")

    async def body(ctx):
        if verb == "gather":
            return await ctx.gather(ctx.sleep(1))
        return await VERBS[verb](ctx)

    async def handler(ctx, params):
        return await ctx.step("outer", body, ctx)

    def plain(ctx, params):
        return ctx.step("outer", lambda: VERBS[verb](ctx))

    done = await run(handler if kind == "async" else plain)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert done.last_error.startswith("NotAllowedInStep: ")
    assert "before or after the step" in done.last_error


async def test_recorded_answers_inside_a_step_are_plain_values(run, clock):
    async def body(ctx):
        return [str(await ctx.now()), len(str(await ctx.uuid())), await ctx.random() < 1]

    async def handler(ctx, params):
        first = await ctx.step("outer", body, ctx)
        await ctx.sleep(60)
        return first == await ctx.step("outer again", lambda: first)

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", True)


@pytest.mark.parametrize(
    "error", [StopIteration(3), StopAsyncIteration(), GeneratorExit()], ids=lambda e: type(e).__name__
)
async def test_an_odd_error_of_a_plain_step_or_handler_ends_the_run(run, error):
    def fails(*_args):
        raise error

    async def handler(ctx, params):
        await ctx.step("odd", fails)

    in_step = await run(handler, max_attempts=1)
    in_handler = await run(lambda ctx, params: fails(), max_attempts=1)

    assert (in_step.status, in_handler.status) == ("ERROR", "ERROR")
    assert in_step.last_error != "worker_lost"


async def test_a_step_that_is_not_awaited_ends_the_run_in_error(run):
    async def handler(ctx, params):
        forgotten = ctx.step("charge", lambda: 1)
        try:
            return "done"
        finally:
            # So that Python does not warn of it too.
            asyncio.get_running_loop().call_soon(forgotten.close)

    done = await run(handler)

    assert done.status == "ERROR"
    assert "'charge' was called and not awaited" in done.last_error


async def test_a_context_that_outlives_its_run_refuses_every_verb(run):
    kept = []

    async def handler(ctx, params):
        kept.append(ctx)
        return 1

    await run(handler)
    effects = []

    with pytest.raises(pgqrs.InvalidTransition, match="has ended this pass"):
        await kept[0].step("late", lambda: effects.append("late"))
    with pytest.raises(pgqrs.InvalidTransition, match="has ended this pass"):
        await kept[0].emit("late")
    assert effects == []


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1, "soon"])
async def test_lengths_of_time_are_checked_where_they_are_given(run, seconds):
    async def handler(ctx, params):
        refused = []
        for ask in (
            lambda: ctx.sleep(seconds),
            lambda: ctx.step("a", lambda: 1, timeout=seconds),
            lambda: ctx.wait_for("a", timeout=seconds),
        ):
            try:
                ask()
            except pgqrs.ConfigError as error:
                refused.append(repr(seconds) in str(error))
        return refused

    done = await run(handler)

    assert done.output() == [True, True, True]


# -- attempts -------------------------------------------------------------------------------------------------


async def worked_off(run, clock, handler, **options):
    found = await run(handler, **options)
    while found.status not in ("SUCCESS", "ERROR"):
        clock.advance(600)
        found = await run(handler, run_id=found.run_id)
    return found


@pytest.mark.parametrize(
    ("policy", "bodies"),
    [(None, 3), (pgqrs.RetryPolicy(max_attempts=1), 1), (pgqrs.RetryPolicy(max_attempts=5), 5)],
    ids=["of the run", "1", "5"],
)
async def test_the_bodies_of_a_step_are_those_of_its_policy_else_one_in_each_attempt_of_the_run(
    run, clock, policy, bodies
):
    calls = []

    def fails():
        calls.append(1)
        raise OSError("never")

    async def handler(ctx, params):
        await ctx.step("work", fails, retry=policy)

    done = await worked_off(run, clock, handler, max_attempts=3)

    assert (done.status, len(calls)) == ("ERROR", bodies)


async def test_a_plain_step_whose_time_is_up_never_runs_beside_its_next_attempt(run, clock):
    running, most, calls = [], [], []
    release = threading.Event()

    def slow():
        calls.append(1)
        running.append(1)
        most.append(len(running))
        if len(calls) == 1:
            release.wait(30)
        running.pop()
        return len(calls)

    async def handler(ctx, params):
        return await ctx.step("slow", slow, timeout=0.5, retry=pgqrs.RetryPolicy(max_attempts=3, base=60))

    waiting = await run(handler)
    clock.advance(600)
    working = asyncio.ensure_future(run(handler, run_id=waiting.run_id))
    await asyncio.sleep(0)
    release.set()
    done = await working

    assert (done.status, max(most)) == ("SUCCESS", 1)


async def test_a_step_that_must_not_be_repeated_is_not_when_its_outcome_is_unknown(run, clock, store, flow):
    effects = []

    async def charge():
        effects.append("charge")
        # The worker is lost here: its run is another's before it can record anything.
        clock.advance(store.config.lease_seconds + 1)
        await other()

    async def other():
        taken.append(await run(handler, run_id=ids[0]))

    async def handler(ctx, params):
        ids.append(ctx.run_id)
        try:
            await ctx.step("charge", charge, retry=pgqrs.RetryPolicy(max_attempts=3, retry_unknown=False))
        except pgqrs.OutcomeUnknown as error:
            return str(error)

    ids, taken = [], []
    await run(handler)
    done = await flow.get_run(ids[0], store)

    assert effects == ["charge"]
    assert (done.status, "is unknown" in done.output()) == ("SUCCESS", True)


async def test_the_key_of_a_step_is_the_same_in_every_attempt_and_no_other_steps(run, clock):
    keys = []

    def fails(ctx):
        keys.append(ctx.step_key)
        if len(keys) < 3:
            raise OSError("again")

    async def handler(ctx, params):
        await ctx.step("charge", fails, ctx, retry=pgqrs.RetryPolicy(max_attempts=3, base=0))
        await ctx.step("charge", lambda: keys.append(ctx.step_key))

    await worked_off(run, clock, handler)

    assert len(keys) == 4
    assert len(set(keys[:3])) == 1
    assert keys[3] not in keys[:3]


async def test_the_key_of_a_step_is_asked_for_in_a_step(run):
    async def handler(ctx, params):
        return ctx.step_key

    done = await run(handler, max_attempts=1)

    assert "ctx.idempotency_key" in done.last_error


# -- progress -------------------------------------------------------------------------------------------------


async def test_progress_is_not_shown_again_by_a_replay(run, clock):
    async def handler(ctx, params):
        for n in range(10):
            await ctx.step("work", lambda: 1)
            await ctx.progress(n + 1, 10)
        await ctx.sleep(60)
        await ctx.progress(10, 10, "slept")

    waiting = await run(handler)
    clock.advance(60)
    with faults.recorded() as points:
        done = await run(handler, run_id=waiting.run_id)

    assert waiting.progress["done"] == 10
    assert done.progress["note"] == "slept"
    assert sum(point == ("before", "claims.show_progress") for point in points) == 1


# -- what does not end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["step", "handler"])
async def test_code_that_stops_its_cancellation_keeps_neither_slot_nor_worker(live_store, monkeypatch, where):
    from pgqrs.engine import execution, worker

    monkeypatch.setattr(execution, "ABANDON_SECONDS", 0.2)
    monkeypatch.setattr(worker, "ABANDON_SECONDS", 0.2)
    await live_store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    begun, release = asyncio.Event(), asyncio.Event()

    async def stubborn():
        begun.set()
        for _ in itertools.count():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
            return

    async def handler(ctx, name: str):
        if name == "quick":
            return "done"
        return await (ctx.step("stubborn", stubborn) if where == "step" else stubborn())

    one = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(1).create(live_store)
    polling = asyncio.create_task(one.poll_forever())
    run_id = await flow.trigger("stubborn").execute(live_store)
    await begun.wait()
    await flow.cancel(run_id, live_store)
    # Its slot is free again: another run is executed.
    assert await flow.trigger("quick").wait().timeout(60).execute(live_store) == "done"

    begun.clear()
    run_id = await flow.trigger("stubborn").execute(live_store)
    await begun.wait()
    one.hand_back()
    await asyncio.wait_for(polling, 60)
    handed_back = await flow.get_run(run_id, live_store)
    release.set()

    assert handed_back.status == "PENDING"


async def test_a_slow_clean_up_is_not_taken_for_a_database_that_is_away(live_store, monkeypatch, caplog):
    from pgqrs.engine import worker

    monkeypatch.setattr(worker, "_FAREWELL_SECONDS", 0.2)
    await live_store.create_workflow("flow")
    begun, cleaned = asyncio.Event(), []

    async def handler(ctx, params):
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            # Longer than a farewell may take, and shorter than code that is cancelled may.
            await asyncio.sleep(0.6)
            cleaned.append(True)

    one = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
    polling = asyncio.create_task(one.poll_forever())
    run_id = await pgqrs.workflow("flow").trigger(None).execute(live_store)
    await begun.wait()
    one.hand_back()
    await asyncio.wait_for(polling, 60)
    run = await pgqrs.workflow("flow").get_run(run_id, live_store)

    assert (cleaned, run.status) == ([True], "PENDING")
    assert "does not answer" not in caplog.text


# asyncpg keeps the context variables of whoever first prepared a statement for as long as it caches that.
@pytest.mark.backends("sqlite", "turso")
async def test_nothing_keeps_an_execution_alive_when_its_pass_is_over(run):
    kept = []

    async def handler(ctx, params):
        kept.append(weakref.ref(ctx._execution))
        idle = asyncio.create_task(asyncio.Event().wait())
        sleeping = asyncio.create_task(ctx.sleep(3600))
        await ctx.step("work", lambda: 1)
        await asyncio.gather(idle, sleeping)

    await run(handler)
    gc.collect()

    assert kept[0]() is None
