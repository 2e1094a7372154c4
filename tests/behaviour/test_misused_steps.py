"""What people write by mistake, or at the edge, is refused with the way out, and never hangs or passes silently."""

import asyncio
import contextlib
import gc
import inspect
import itertools
import threading
import warnings
import weakref

import anyio
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


async def test_a_decorated_step_inside_the_body_of_a_step_is_a_plain_call(run, store):
    calls = []

    @pgqrs.step(retry=pgqrs.RetryPolicy(max_attempts=5))
    async def inner():
        calls.append(1)
        raise OSError("once")

    async def body():
        return await inner()

    async def wrapped(ctx, params):
        return await ctx.step("outer", body)

    done = await run(wrapped, max_attempts=1)

    assert (done.status, len(calls)) == ("ERROR", 1)
    assert [step.step_id for step in await done.steps()] == ["outer"]


async def test_what_the_body_of_a_step_emits_is_published_once_when_the_step_is_recorded(run, store, clock):
    attempts = []

    async def ship(ctx):
        await ctx.emit("order.shipped", {"attempt": len(attempts)})
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("the parcel fell")

    async def handler(ctx, params):
        await ctx.step("ship", ship, ctx, retry=pgqrs.RetryPolicy(max_attempts=3, base=1))
        await ctx.sleep(60)

    waiting = await run(handler)
    seen = [(await pgqrs.admin(store).outbox.counts()).pending]
    for _ in range(4):
        clock.advance(60)
        done = await run(handler, run_id=waiting.run_id)
        seen.append((await pgqrs.admin(store).outbox.counts()).pending)

    assert (done.status, len(attempts)) == ("SUCCESS", 3)
    assert (seen[0], seen[-1]) == (0, 1)
    assert [step.step_id for step in await done.steps()] == ["ship", "sleep"]


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


@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: ctx.step("fetch", int, 5) + 1,
        lambda ctx: ctx.step("fetch", dict)["total"],
        lambda ctx: ctx.step("fetch", str).upper(),
        lambda ctx: ctx.wait_for("fetch") + 1,
        lambda ctx: sum([ctx.now()]),
    ],
)
async def test_a_step_that_is_used_without_an_await_is_named(run, use):
    async def handler(ctx, params):
        return use(ctx)

    done = await run(handler)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert "was called and not awaited, so it never ran; put `await` before the call" in done.last_error


async def test_a_coroutine_of_the_handlers_own_is_none_of_our_business(run):
    async def price():
        return 5

    async def handler(ctx, params):
        late = price()
        try:
            return late + 1
        finally:
            late.close()

    done = await run(handler, max_attempts=1)

    assert done.last_error == "TypeError: unsupported operand type(s) for +: 'coroutine' and 'int'"


async def charge(amount: int) -> int:
    return amount


@pgqrs.step
async def decorated(amount: int) -> int:
    return amount


MISWRITTEN = {
    "a coroutine": (
        lambda ctx: ctx.step("s", charge(5)),
        "takes a function, got a coroutine",
        "ctx.step('s', charge, a)",
    ),
    "a decorated step": (
        lambda ctx: ctx.step("s", decorated(5)),
        "takes a function, got",
        "ctx.step('s', charge, a)",
    ),
    "a result": (lambda ctx: ctx.step("s", None), "takes a function, got None", "ctx.step('s', charge, a)"),
    "the wrong order": (lambda ctx: ctx.step(charge, "s"), "takes the name first", "write ctx.step('s', charge)"),
    "a lambda first": (lambda ctx: ctx.step(lambda: 1, "s"), "takes the name first", "write ctx.step('s', function)"),
    "a transaction": (lambda ctx: ctx.transaction("s", charge(5)), "got a coroutine", "ctx.transaction('s', work)"),
}


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("mistake", MISWRITTEN)
async def test_a_step_that_is_given_no_function_ends_the_run_at_once_with_the_way_out(run, mistake, kind):
    ask, *said = MISWRITTEN[mistake]

    async def handler(ctx, params):
        await ask(ctx)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = await run(handler if kind == "async" else lambda ctx, params: ask(ctx))
        gc.collect()

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert done.last_error.startswith("PermanentError: ")
    for each in said:
        assert each in done.last_error


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
    from pgqrs.engine.replay import run_pass
    from pgqrs.engine.runs import shutdown

    monkeypatch.setattr(run_pass, "ABANDON_SECONDS", 0.2)
    monkeypatch.setattr(shutdown, "ABANDON_SECONDS", 0.2)
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
    from pgqrs import shutdown_budgets

    monkeypatch.setattr(shutdown_budgets, "WORKER_FAREWELL_SECONDS", 0.2)
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
        kept.append(weakref.ref(ctx._run_pass))
        idle = asyncio.create_task(asyncio.Event().wait())
        sleeping = asyncio.create_task(ctx.sleep(3600))
        await ctx.step("work", lambda: 1)
        await asyncio.gather(idle, sleeping)

    await run(handler)
    gc.collect()

    assert kept[0]() is None


async def test_the_timeout_of_a_plain_function_covers_the_coroutine_that_it_returns(run):
    async def handler(ctx, params):
        try:
            await ctx.step("slow", lambda: asyncio.Event().wait(), timeout=0.01)
        except TimeoutError as error:
            return str(error)

    done = await asyncio.wait_for(run(handler), 10)

    assert done.output() == "the step took longer than its timeout of 0.01 s"


async def test_a_coroutine_that_a_plain_function_returns_too_late_is_closed(run):
    may_return = threading.Event()
    late = []

    def slow():
        may_return.wait(20)
        late.append(asyncio.Event().wait())
        return late[0]

    async def handler(ctx, params):
        try:
            await ctx.step("slow", slow, timeout=0.01)
        except TimeoutError:
            may_return.set()
            while not late or inspect.getcoroutinestate(late[0]) != inspect.CORO_CLOSED:
                await asyncio.sleep(0)
            return "closed"

    done = await asyncio.wait_for(run(handler), 20)

    assert done.output() == "closed"


async def alone(asked):
    return await asked


async def timed(asked, seconds):
    async with asyncio.timeout(seconds):
        return await asked


async def in_a_task_of_a_task(asked):
    return await asyncio.create_task(alone(asyncio.create_task(asked)))


async def gathered(asked):
    return await asyncio.gather(asyncio.gather(asked), asyncio.sleep(0))


@pytest.mark.parametrize("within", [alone, asyncio.create_task, in_a_task_of_a_task, gathered])
@pytest.mark.parametrize("deadline", [asyncio.wait_for, timed])
async def test_a_deadline_of_asyncio_around_a_step_ends_the_run(run, within, deadline):
    seen = []

    async def slow():
        await asyncio.sleep(0.2)
        return "slow"

    async def handler(ctx, params):
        try:
            seen.append(await deadline(within(ctx.step("slow", slow)), 0.05))
        except (TimeoutError, pgqrs.PermanentError) as error:
            seen.append(type(error).__name__)

    done = await run(handler)

    assert (done.status, done.attempt, seen) == ("ERROR", 1, [])
    assert "use ctx.step(..., timeout=...)" in done.last_error


def broken_off(pages):
    async def loop():
        async for _page in pages:
            break

    return loop()


def failed_in(pages):
    async def loop():
        with contextlib.suppress(ValueError):
            async for _page in pages:
                raise ValueError("in the loop")

    return loop()


@pytest.mark.parametrize("leave", [broken_off, failed_in])
async def test_a_step_of_a_generator_that_was_left_early_is_refused_with_the_way_out(run, clock, leave):
    async def handler(ctx, params):
        async def pages():
            try:
                for number in range(3):
                    yield await ctx.step("page", int, number)
            finally:
                await ctx.step("close", lambda: "closed")

        await leave(pages())
        gc.collect()
        await ctx.step("after", lambda: 1)
        await ctx.sleep(60)

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert "contextlib.aclosing" in done.last_error


async def test_a_generator_that_is_closed_by_aclosing_may_ask_for_steps(run, clock):
    async def handler(ctx, params):
        async def pages():
            try:
                for number in range(3):
                    yield await ctx.step("page", int, number)
            finally:
                await ctx.step("close", lambda: "closed")

        async with contextlib.aclosing(pages()) as found:
            async for _page in found:
                break
        await ctx.sleep(60)
        return "done"

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", "done")


async def test_a_thread_that_is_overdue_holds_up_no_run_of_another_database(run, tmp_path):
    may_end = threading.Event()

    async def slow(ctx, params):
        try:
            await ctx.step("s", may_end.wait, 60, timeout=0.05)
        except TimeoutError:
            return "overdue"

    async def quick(ctx, params):
        return await ctx.step("s", lambda: "quick", timeout=5)

    try:
        overdue = await run(slow)
        async with pgqrs.connect(f"sqlite:///{tmp_path}/other.db") as other:
            await other.create_workflow("flow")
            run_id = await pgqrs.workflow("flow").trigger(None).execute(other)
            worker = await pgqrs.consumer("w", 0, "flow").handler(quick).create(other)
            await worker.run_until_idle()
            await worker.close()
            done = await pgqrs.workflow("flow").get_run(run_id, other)
    finally:
        may_end.set()

    assert (overdue.output(), overdue.run_id) == ("overdue", done.run_id)
    assert done.output() == "quick"


@pytest.mark.parametrize("verb", ["emit", "map", "progress"])
async def test_a_verb_that_is_not_awaited_ends_the_run_in_error(run, verb):
    async def handler(ctx, params):
        asked = {
            "emit": lambda: ctx.emit("a"),
            "map": lambda: ctx.map("flow", [1]),
            "progress": lambda: ctx.progress(1),
        }
        forgotten = asked[verb]()
        try:
            return "done"
        finally:
            # So that Python does not warn of it too.
            asyncio.get_running_loop().call_soon(forgotten.close)

    done = await run(handler)

    assert done.status == "ERROR"
    assert f"'{verb}" in done.last_error
    assert "put `await` before the call" in done.last_error


def made_here():
    class Unreadable(Exception):
        """A class that a replay cannot find."""

    return Unreadable


@pytest.mark.parametrize(("option", "attempts"), [("give_up_on", 1), ("retry_on", 2)])
async def test_a_policy_of_the_workflow_knows_a_class_that_comes_back_as_a_stand_in(store, clock, option, attempts):
    unreadable = made_here()

    def fails():
        raise unreadable("no")

    @pgqrs.workflow(name="strict", retry=pgqrs.RetryPolicy(**{option: (unreadable,)}))
    async def strict(ctx, params=None):
        await ctx.step("s", fails)

    await store.create_workflow("strict")
    worker = await pgqrs.worker("w").workflows({"strict": strict}).create(store)
    run_id = await pgqrs.workflow("strict").trigger(None, max_attempts=2).execute(store)
    for _ in range(2):
        await worker.run_until_idle()
        clock.advance(60)
    await worker.close()

    done = await pgqrs.workflow("strict").get_run(run_id, store)
    assert (done.status, done.attempt) == ("ERROR", attempts)


@pytest.mark.parametrize("scope", [anyio.move_on_after, anyio.fail_after])
async def test_a_deadline_of_anyio_around_a_wait_is_refused(run, scope):
    async def handler(ctx, params):
        with scope(3600):
            await ctx.wait_for("never")

    done = await run(handler)

    assert done.status == "ERROR", done.waiting_for
    assert "does not last" in done.last_error


class TimerHandle:
    """As uvloop's is: no subclass of asyncio's."""

    def __init__(self, inner):
        self.cancel = inner.cancel


@pytest.mark.row("B2.16")
async def test_a_deadline_on_an_event_loop_with_timers_of_its_own_is_refused(run, monkeypatch):
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda *args, **options: TimerHandle(call_later(*args, **options)))

    async def handler(ctx, params):
        await asyncio.wait_for(ctx.wait_for("never"), 3600)

    done = await run(handler)

    assert done.status == "ERROR", done.waiting_for
    assert "does not last" in done.last_error


async def test_a_scope_of_anyio_that_was_left_is_no_deadline(run):
    async def handler(ctx, params):
        with anyio.move_on_after(3600) as scope:
            await ctx.step("s", lambda: 1)
        await ctx.wait_for("go")
        return scope.cancelled_caught

    waiting = await run(handler)

    assert (waiting.status, waiting.waiting_for) == ("PAUSED", "go")


async def test_a_run_rests_while_its_handler_waits_in_a_task_group_of_anyio(run):
    async def handler(ctx, params):
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(ctx.sleep, 60)

    waiting = await asyncio.wait_for(run(handler), 8)

    assert waiting.status == "PAUSED"


async def test_a_keyboard_interrupt_in_a_steps_thread_is_the_steps_failure(run):
    def fails():
        raise KeyboardInterrupt("of the step's own code")

    async def handler(ctx, params):
        await ctx.step("s", fails)

    done = await run(handler, max_attempts=1)

    assert done.status == "ERROR"
    assert "KeyboardInterrupt" in done.last_error


async def test_an_object_with_an_async_call_is_an_async_handler(run):
    class Order:
        async def __call__(self, ctx, params=None):
            return await ctx.step("s", lambda: 1)

    done = await run(Order())

    assert (done.status, done.output()) == ("SUCCESS", 1)
