"""Handlers that catch, compensate and clean up see their own errors only, and the same ones in every pass."""

import asyncio
import json

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.queries import Query


def away():
    raise pgqrs.ConnectionFailed("the database is away")


def outage(phase, *, times):
    """The next checkpoints are not written, or their replies are lost."""
    return faults.injected(faults.at(phase, "settlement.commit", away, times=times))


class Declined(Exception):
    """A user's error, with what the handler decides by."""

    def __init__(self, code, *, retryable=False):
        super().__init__(f"declined with {code}")
        self.code = code
        self.retryable = retryable


# -- the engine's trouble is not the handler's ----------------------------------------------------------------


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_an_outage_while_a_step_is_recorded_does_not_fail_the_step(run, phase):
    effects = []

    async def handler(ctx, params):
        try:
            with outage(phase, times=3):
                paid = await ctx.step("charge", lambda: effects.append("charge") or "paid")
        except Exception:
            await ctx.step("refund", lambda: effects.append("refund"))
            raise
        return paid

    done = await run(handler)

    assert (done.status, done.output(), effects) == ("SUCCESS", "paid", ["charge"])
    assert [(s.step_id, s.status) for s in await done.steps()] == [("charge", "SUCCESS")]


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_an_outage_in_a_task_group_does_not_fail_its_steps(run, phase):
    effects = []

    async def handler(ctx, params):
        async def step(name):
            return await ctx.step(name, lambda: effects.append(name) or name)

        with outage(phase, times=2):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(step(name)) for name in ("a", "b", "c")]
        return [task.result() for task in tasks]

    done = await run(handler)

    assert (done.status, done.output()) == ("SUCCESS", ["a", "b", "c"])
    assert sorted(effects) == ["a", "b", "c"]


async def test_an_event_whose_reply_was_lost_for_long_is_published_once(run, store):
    async def handler(ctx, params):
        with outage("after", times=2):
            await ctx.emit("charged", {"amount": 3})
            await ctx.step("ship", emits, ctx)

    async def emits(ctx):
        await ctx.emit("shipped")

    done = await run(handler)
    published = []
    await pgqrs.dispatcher(store).to(lambda event: published.append(event.type)).run_until_idle()

    assert done.status == "SUCCESS"
    assert published == ["charged", "shipped"]


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("call", ["claims.spawn", "claims.take_signal", "claims.transact"])
async def test_an_outage_in_any_verb_is_waited_out(run, store, flow, phase, call):
    await store.create_workflow("child")
    caught = []

    async def work(tx):
        return (await tx.fetch("select 1"))[0][0]

    async def handler(ctx, params):
        try:
            with faults.injected(faults.at(phase, call, away, times=2)):
                if call == "claims.spawn":
                    return (await ctx.spawn("child", 1)).run_id > 0
                if call == "claims.take_signal":
                    return await ctx.wait_for("go")
                return await ctx.transaction("write", work)
        except Exception as error:
            caught.append(error)
            raise

    run_id = await flow.trigger(None).execute(store)
    await flow.signal(run_id, store, "go", 1)
    done = await run(handler, run_id=run_id)

    assert (done.status, done.output(), caught) == ("SUCCESS", 1, [])
    if call == "claims.spawn":
        assert len(await pgqrs.workflow("child").runs(store)) == 1


@pytest.mark.parametrize(
    "error",
    [
        pgqrs.LeaseLost("message 7 was leased again", message_id=7),
        pgqrs.RunCancelled(99, "by its owner"),
        pgqrs.ConnectionFailed("another database is away"),
        pgqrs.NonDeterminism("something else"),
        OSError(5, "input/output error"),
        TimeoutError("of the user's"),
        asyncio.CancelledError("of the user's"),
        SystemExit(3),
        GeneratorExit("odd"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_that_a_step_raises_is_the_steps_error_whatever_its_class(run, error):
    def fails():
        raise error

    async def handler(ctx, params):
        try:
            await ctx.step("work", fails)
        except Exception as caught:  # noqa: BLE001 - as users write it
            seen = [type(caught).__name__, str(caught)]
        await ctx.sleep(60)
        return seen

    waiting = await run(handler)
    [step] = [s for s in await waiting.steps() if s.step_id == "work"]

    assert (waiting.status, step.status, waiting.attempt) == ("PAUSED", "ERROR", 1)


async def test_a_parent_fails_at_once_when_a_cancelled_childs_error_is_not_caught(run, store, clock):
    await store.create_workflow("child")
    child_flow = pgqrs.workflow("child")

    async def parent(ctx, params):
        child = await ctx.spawn("child", None)
        return await child.result()

    waiting = await run(parent, max_attempts=1)
    [child] = await child_flow.runs(store)
    await child_flow.cancel(child.run_id, store, reason="not wanted")
    done = await run(parent, run_id=waiting.run_id)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert done.last_error.startswith("RunCancelled: ")


async def test_a_parent_that_catches_its_childs_cancellation_continues(run, store):
    await store.create_workflow("child")
    child_flow = pgqrs.workflow("child")

    async def parent(ctx, params):
        child = await ctx.spawn("child", None)
        try:
            await child.result()
        except pgqrs.RunCancelled as error:
            caught = [error.run_id == child.run_id, error.reason]
        await ctx.sleep(60)
        return caught

    waiting = await run(parent)
    [child] = await child_flow.runs(store)
    await child_flow.cancel(child.run_id, store, reason="not wanted")
    waiting = await run(parent, run_id=waiting.run_id)

    assert waiting.waiting_for.startswith("sleep until")


# -- caught errors come back as they were ---------------------------------------------------------------------


async def test_a_caught_error_is_the_same_in_every_pass(run, clock):
    seen = []

    def declines():
        raise Declined(402, retryable=True) from KeyError("card")

    def parses():
        json.loads("{oops")

    async def handler(ctx, params):
        try:
            await ctx.step("charge", declines)
        except Declined as error:
            cause = error.__cause__
            seen.append((str(error), error.code, error.retryable, error.args, type(cause), cause.args))
        try:
            await ctx.step("parse", parses)
        except json.JSONDecodeError as error:
            seen.append((str(error), error.pos, error.doc, error.lineno))
        await ctx.sleep(60)
        return "done"

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert done.output() == "done"
    assert len(seen) == 4
    assert seen[:2] == seen[2:]
    assert seen[0][1:3] == (402, True)


async def test_an_error_caught_and_compensated_is_not_run_again_by_a_retry(run, clock):
    effects = []

    def declines():
        effects.append("charge")
        raise Declined(402)

    def fails_once():
        effects.append("mail")
        if effects.count("mail") == 1:
            raise OSError("no mail today")

    async def handler(ctx, params):
        try:
            await ctx.step("charge", declines)
        except Declined:
            await ctx.step("mail", fails_once)
        return "told"

    waiting = await run(handler)
    clock.advance(600)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", "told")
    assert effects == ["charge", "mail", "mail"]


@pytest.mark.parametrize("recorded", ["by this version", "before results had numbers"])
async def test_a_step_in_a_finally_block_does_not_park_the_retry(run, store, clock, recorded):
    effects = []

    def fails_once():
        effects.append("work")
        if effects.count("work") == 1:
            raise OSError("not yet")

    async def handler(ctx, params):
        try:
            try:
                await ctx.step("work", fails_once)
                await ctx.step("more", lambda: effects.append("more"))
            finally:
                await ctx.step("clean up", lambda: effects.append("clean up"))
        except OSError as error:
            # Without this the run would not be retried: it has cleaned up.
            raise pgqrs.TransientError("again") from error
        await ctx.sleep(60)
        return "done"

    waiting = await run(handler)
    if recorded == "before results had numbers":
        await store.database.execute(Query("unnumber", "update pgqrs_workflow_steps set sequence = null"))
    clock.advance(600)
    waiting = await run(handler, run_id=waiting.run_id)
    # A replay of the attempt that went well finds what the failed one did about its failure, too.
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", "done")
    assert effects == ["work", "clean up", "work", "more"]


@pytest.mark.parametrize("form", ["gather", "TaskGroup"])
async def test_what_was_done_about_a_failed_branch_does_not_park_the_retry(run, clock, form):
    effects = []

    def fails_once():
        effects.append("a")
        if effects.count("a") == 1:
            raise OSError("not yet")

    async def handler(ctx, params):
        async def branch(name, function):
            return await ctx.step(name, function)

        both = [branch("a", fails_once), branch("b", lambda: effects.append("b"))]
        try:
            if form == "gather":
                await asyncio.gather(*both)
            else:
                async with asyncio.TaskGroup() as group:
                    for each in both:
                        group.create_task(each)
        except Exception as error:
            await asyncio.gather(branch("undo", lambda: effects.append("undo")))
            await ctx.step("tell", lambda: effects.append("tell"))
            raise pgqrs.TransientError("again") from error
        await ctx.step("ship", lambda: effects.append("ship"))
        await asyncio.gather(branch("pack", lambda: effects.append("pack")))
        await ctx.sleep(60)
        return "done"

    waiting = await run(handler)
    clock.advance(600)
    waiting = await run(handler, run_id=waiting.run_id)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", "done")
    assert effects.count("a") == 2
    assert [effects.count(each) for each in ("b", "undo", "tell", "ship", "pack")] == [1, 1, 1, 1, 1]


async def test_a_branch_that_its_group_cancelled_does_no_more_in_a_replay(run, clock):
    effects = []

    async def handler(ctx, params):
        in_b = asyncio.Event()

        async def fails():
            if not effects:
                await in_b.wait()
            await ctx.step("a", fail)

        async def works():
            await ctx.step("b", work)
            await ctx.step("c", lambda: effects.append("c"))

        async def work():
            effects.append("b")
            in_b.set()
            await failed.wait()

        def fail():
            loop.call_soon_threadsafe(failed.set)
            raise ValueError("not this one")

        loop, failed = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                group.create_task(works())
        except* ValueError:
            pass
        await ctx.sleep(60)
        return "done"

    waiting = await run(handler)
    was = list(effects)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert done.output() == "done"
    assert effects == was


async def test_a_handled_timeout_of_a_wait_is_not_waited_for_again(run, clock, store):
    passes = []

    async def handler(ctx, params):
        passes.append(ctx.attempt)
        try:
            await ctx.wait_for("approval", timeout=3600)
        except pgqrs.WaitTimeout as error:
            text = str(error)
        if len(passes) == 2:
            raise OSError("later trouble")
        return text

    waiting = await run(handler)
    clock.advance(3600)
    waiting = await run(handler, run_id=waiting.run_id)
    clock.advance(600)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", "no signal 'approval' came in time")


async def test_a_recorded_value_that_the_code_cannot_read_any_more_parks_the_run(run, clock):
    async def text() -> str:
        return "many"

    async def number() -> int:
        return 3

    def made(function):
        async def handler(ctx, params):
            try:
                value = await ctx.step("count", function)
            except Exception:  # noqa: BLE001 - as users write it
                value = "caught"
            await ctx.sleep(60)
            return value

        return handler

    waiting = await run(made(text))
    clock.advance(60)
    parked = await run(made(number), run_id=waiting.run_id)

    assert parked.status == "PAUSED"
    assert "cannot be read any more" in parked.waiting_for


async def test_a_step_that_does_not_return_what_it_says_fails_and_is_not_recorded_as_done(run):
    async def number() -> int:
        return "many"

    async def handler(ctx, params):
        try:
            return await ctx.step("count", number)
        except pgqrs.SerializationError:
            return "caught"

    done = await run(handler)

    assert done.output() == "caught"
    assert [s.status for s in await done.steps()] == ["ERROR"]


async def test_changed_code_is_no_error_that_a_handler_can_catch(run, clock):
    refunds = []

    def made(name):
        async def handler(ctx, params):
            try:
                await ctx.step(name, lambda: 1)
            except Exception:
                refunds.append(name)
                raise
            await ctx.sleep(60)

        return handler

    waiting = await run(made("charge"))
    clock.advance(60)
    parked = await run(made("bill"), run_id=waiting.run_id)

    assert (parked.status, refunds) == ("PAUSED", [])
    assert "asks for step 'bill' where 'charge' is recorded" in parked.waiting_for


async def test_a_retry_that_goes_well_is_not_parked_for_the_compensation_of_the_first(run, clock):
    effects = []

    def ships():
        effects.append("ship")
        if effects.count("ship") == 1:
            raise OSError("no parcels today")
        return "shipped"

    async def handler(ctx, params):
        try:
            return await ctx.step("ship", ships)
        except OSError as error:
            await ctx.step("refund", lambda: effects.append("refund"))
            raise pgqrs.TransientError("not shipped") from error

    waiting = await run(handler)
    clock.advance(600)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", "shipped")
    assert effects == ["ship", "refund", "ship"]
