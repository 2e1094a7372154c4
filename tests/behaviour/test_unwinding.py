"""Handlers that an attacker found: each hung, was parked, lost its pass or saw another world in a replay."""

import asyncio
import contextlib
import gc
import threading

import pytest

import pgqrs
from pgqrs import faults

pytestmark = pytest.mark.filterwarnings("default")
flow_ = pgqrs.workflow("flow")


def away():
    raise pgqrs.ConnectionFailed("the database is away")


async def soon(work, seconds=5):
    """A pass that takes longer hangs: its run is RUNNING, and its lease is renewed."""
    return await asyncio.wait_for(work, seconds)


async def worked_off(run, clock, handler, *, passes=8, forward=4000, **options):
    found = await soon(run(handler, **options))
    for _ in range(passes):
        if found.status in ("SUCCESS", "ERROR", "CANCELLED"):
            break
        clock.advance(forward)
        found = await soon(run(handler, run_id=found.run_id))
    return found


@pytest.fixture
async def polling(live_store):
    """A worker that is at work on `flow`; gives it and its task."""
    await live_store.create_workflow("flow")
    begun = []

    async def begin(handler):
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
        begun.append((worker, asyncio.create_task(worker.poll_forever())))
        return begun[-1]

    yield begin
    for worker, task in begun:
        worker.hand_back()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_group_whose_branch_cleans_up_in_a_step_can_wait(run, clock):
    effects = []

    async def handler(ctx, params):
        async def branch():
            try:
                await ctx.sleep(60)
            finally:
                await ctx.step("clean", lambda: effects.append("clean"))

        async with asyncio.TaskGroup() as group:
            group.create_task(branch())
        return "done"

    waiting = await soon(run(handler))
    assert waiting.status == "PAUSED"
    done = await worked_off(run, clock, handler, run_id=waiting.run_id)
    assert (done.status, effects) == ("SUCCESS", ["clean"])


async def test_a_branch_that_raises_when_it_is_cancelled_does_not_lose_the_pass(run, clock):
    async def handler(ctx, params):
        async def branch():
            try:
                await ctx.sleep(60)
            except asyncio.CancelledError:
                raise ValueError("interrupted") from None

        async with asyncio.TaskGroup() as group:
            group.create_task(branch())
        return "done"

    done = await worked_off(run, clock, handler)
    assert (done.status, done.last_error) == ("SUCCESS", None)


async def _managed_group(ctx):
    @contextlib.asynccontextmanager
    async def group():
        async with asyncio.TaskGroup() as made:
            yield made

    async with group() as made:
        made.create_task(ctx.sleep(60))


async def _generator(ctx):
    queue = asyncio.Queue()

    async def produce():
        await ctx.sleep(60)
        await queue.put(None)

    async def items():
        while (item := await queue.get()) is not None:
            yield item

    task = asyncio.create_task(produce())
    async for _ in items():
        pass
    await task


@pytest.mark.parametrize("form", [_managed_group, _generator])
async def test_a_handler_that_only_waits_is_put_to_rest(run, clock, form):
    async def handler(ctx, params):
        await form(ctx)
        return "done"

    done = await worked_off(run, clock, handler)
    assert done.output() == "done"


async def test_a_finally_that_awaits_a_branch_does_not_keep_the_run(run, clock):
    async def handler(ctx, params):
        task = asyncio.create_task(ctx.sleep(60))
        try:
            await ctx.sleep(30)
        finally:
            await task
        return "done"

    done = await worked_off(run, clock, handler)
    assert done.output() == "done"


@pytest.mark.parametrize("how", ["waits", "loses its lease"])
async def test_a_finally_on_the_way_out_does_nothing_and_runs_again(run, clock, how):
    effects, begun, seen = [], [], []

    def lose():
        raise pgqrs.LeaseLost("run 1 was leased again")

    async def handler(ctx, params):
        async def clean():
            await ctx.step("clean", lambda: effects.append("clean"))

        begun.append(1)
        lost = faults.injected(faults.at("before", "settlement.commit", lose))
        try:
            if how == "waits":
                await ctx.sleep(60)
            else:
                with lost if len(begun) == 1 else contextlib.nullcontext():
                    await ctx.step("work", lambda: 1)
        finally:
            seen.extend(await asyncio.gather(clean(), return_exceptions=True))
        return "done"

    done = await worked_off(run, clock, handler)

    assert (done.output(), effects, len(begun)) == ("done", ["clean"], 2)
    # Nothing that a handler takes for an error of its own.
    assert isinstance(seen[0], BaseException)
    assert not isinstance(seen[0], Exception)
    assert seen[1:] == [None]


async def test_a_condition_whose_lock_a_waiting_branch_holds(run, clock):
    async def handler(ctx, params):
        condition, ready = asyncio.Condition(), []

        async def producer():
            async with condition:
                await ctx.sleep(60)
                ready.append(1)
                condition.notify_all()

        async with condition:
            task = asyncio.create_task(producer())
            await condition.wait_for(lambda: ready)
        await task
        return "done"

    done = await worked_off(run, clock, handler)
    assert done.output() == "done"


async def test_the_same_when_the_pass_is_halted(run):
    def odd():
        raise pgqrs.PgqrsError("the row is poison")

    async def handler(ctx, params):
        task = asyncio.create_task(ctx.sleep(6000))
        await asyncio.sleep(0)
        try:
            with faults.injected(faults.at("before", "settlement.commit", odd, times=1)):
                await ctx.step("work", lambda: 1)
        finally:
            await task

    halted = await soon(run(handler), 8)
    assert halted.last_error.startswith("PgqrsError")


@pytest.mark.parametrize("verb", ["step", "spawn"])
async def test_an_outage_does_not_become_the_handlers_timeout(run, clock, store, verb):
    await store.create_workflow("child")
    point = ("before", "settlement.commit") if verb == "step" else ("after", "claims.spawn")
    seen = []

    async def handler(ctx, params):
        outage = contextlib.nullcontext() if seen else faults.injected(faults.at(*point, away, times=3))
        try:
            with outage:
                async with asyncio.timeout(0.2):
                    await (ctx.step("quick", lambda: 1) if verb == "step" else ctx.spawn("child", 1))
            seen.append("in time")
        except TimeoutError:
            seen.append("late")
        await ctx.sleep(60)

    await worked_off(run, clock, handler, passes=2)
    assert len(set(seen)) <= 1, seen


async def test_a_deadline_that_is_over_is_none(run, clock):
    async def handler(ctx, params):
        async with asyncio.timeout(5) as limit:
            await asyncio.Lock().acquire()
        await ctx.sleep(60)
        return limit.expired()

    done = await worked_off(run, clock, handler)
    assert (done.status, done.last_error) == ("SUCCESS", None)


async def _in_a_stack(ctx):
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(0.2))
        await ctx.wait_for("approval")


@pytest.mark.parametrize("form", [_in_a_stack])
async def test_a_deadline_around_a_wait_is_refused_and_not_forgotten(run, clock, form):
    async def handler(ctx, params):
        await form(ctx)

    done = await worked_off(run, clock, handler, passes=2)
    assert done.status == "ERROR"


async def test_the_timeout_of_a_plain_step_holds_in_its_second_attempt(run, clock):
    release = threading.Event()

    async def handler(ctx, params):
        await ctx.step("stuck", lambda: release.wait(60), timeout=0.05)

    try:
        done = await worked_off(run, clock, handler)
        assert done.status == "ERROR"
    finally:
        release.set()


async def test_garbage_of_another_run_does_not_number_the_branches_of_this_one(run, clock):
    effects = []

    async def pages():
        yield 1
        yield 2

    async def handler(ctx, params):
        if params == "pages":
            found = pages()
            async for _ in found:
                await ctx.sleep(3600)
            return None
        if not effects:
            # As Python does by itself, at any moment.
            gc.collect()
        await asyncio.sleep(0)

        async def one(n):
            await ctx.step("one", lambda: effects.append(n))

        await asyncio.gather(one(1), one(2))
        await ctx.sleep(60)
        return "done"

    gc.collect()
    gc.disable()
    try:
        await soon(run(handler, "pages"))
        waiting = await soon(run(handler, "other"))
        clock.advance(60)
        done = await soon(run(handler, run_id=waiting.run_id))
    finally:
        gc.enable()
    assert (done.output(), effects) == ("done", [1, 2])


async def test_the_winner_of_a_race_that_failed_is_raced_again_by_a_retry(run, clock):
    caught = []

    async def handler(ctx, params):
        try:
            await ctx.first(ctx.wait_for("x", timeout=60), ctx.wait_for("y"))
        except Exception as error:
            caught.append(type(error).__name__)
            raise

    await worked_off(run, clock, handler)
    assert set(caught) == {"WaitTimeout"}


async def test_a_child_that_won_a_race_and_failed_is_restarted_with_its_parent(run, flow, store):
    await store.create_workflow("child")
    child_flow, works = pgqrs.workflow("child"), []

    async def parent(ctx, params):
        child = await ctx.spawn("child", None)
        return (await ctx.first(child.result(), ctx.sleep(6000))).value

    async def child(ctx, params):
        if not works:
            raise pgqrs.PermanentError("not yet")
        return 5

    failed = await run(parent, max_attempts=1)
    worker = await pgqrs.consumer("c", 0, "child").handler(child).create(store)
    await worker.run_until_idle()
    failed = await run(parent, run_id=failed.run_id)
    [started] = await child_flow.runs(store)
    works.append(True)
    await child_flow.restart(started.run_id, store)
    await flow.restart(failed.run_id, store)
    await run(parent, run_id=failed.run_id)
    await worker.run_until_idle()
    done = await run(parent, run_id=failed.run_id)
    await worker.close()
    assert (done.status, done.last_error) == ("SUCCESS", None)


async def test_a_wait_that_won_and_is_awaited_takes_no_second_signal(run, flow, store):
    async def handler(ctx, params):
        approval = ctx.wait_for("x")
        await ctx.first(approval, ctx.sleep(60))
        return await approval

    run_id = await flow.trigger(None).execute(store)
    await flow.signal(run_id, store, "x", 7)
    await flow.signal(run_id, store, "x", 8)
    done = await soon(run(handler, run_id=run_id))
    # Also breaks invariant I14: 8 is consumed, and no step's result. A replay gets 7.
    assert done.output() == 7


async def test_a_background_sleep_that_is_given_up_is_no_error_in_the_replay(run, clock):
    async def handler(ctx, params):
        sleeping = asyncio.create_task(ctx.sleep(3600))
        await ctx.step("work", lambda: 1)
        sleeping.cancel()
        await ctx.sleep(60)
        return "done"

    done = await worked_off(run, clock, handler)
    assert (done.status, done.last_error) == ("SUCCESS", None)


async def test_a_step_whose_group_failed_before_it_began_is_no_mistake(run, clock):
    async def handler(ctx, params):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("a", lambda: 1))
                raise ValueError("no")
        except* ValueError:
            await ctx.step("compensate", lambda: 1)
        return "done"

    done = await worked_off(run, clock, handler)
    assert (done.status, done.last_error) == ("SUCCESS", None)


async def test_a_run_whose_last_step_is_in_flight_is_handed_back(live_store, polling):
    begun, release, bodies = asyncio.Event(), asyncio.Event(), []

    async def handler(ctx, params):
        async def body():
            bodies.append("begun")
            begun.set()
            await release.wait()
            bodies.append("ended")

        async def audit():
            await ctx.step("audit", body)

        task = asyncio.create_task(audit())
        await ctx.step("begun", begun.wait)
        return task.done()

    worker, task = await polling(handler)
    run_id = await flow_.trigger(None).execute(live_store)
    await begun.wait()
    await asyncio.sleep(0.2)
    worker.hand_back()
    await asyncio.wait_for(task, 30)
    back = await flow_.get_run(run_id, live_store)
    release.set()
    await asyncio.sleep(0.1)
    # Observed: RUNNING until the lease ends, an attempt counted, and the body goes on beside its next attempt.
    assert (back.status, bodies) == ("PENDING", ["begun"])


async def test_a_run_that_is_being_put_to_rest_is_handed_back(live_store, polling):
    cleaning = asyncio.Event()

    async def handler(ctx, params):
        async def background():
            try:
                await ctx.sleep(3600)
            finally:
                cleaning.set()
                await asyncio.sleep(1)

        task = asyncio.create_task(background())
        await ctx.sleep(3600)
        await task

    worker, task = await polling(handler)
    run_id = await flow_.trigger(None).execute(live_store)
    await asyncio.wait_for(cleaning.wait(), 5)
    worker.hand_back()
    await asyncio.wait_for(task, 30)
    assert (await flow_.get_run(run_id, live_store)).status in ("PENDING", "PAUSED")


@pytest.mark.parametrize("turns", range(6))
async def test_a_run_that_comes_to_rest_while_its_worker_is_closed_is_given_back(store, turns):
    """Between the last step and the wait, at each turn of the event loop."""
    await store.create_workflow("flow")

    async def handler(ctx, params):
        await ctx.step("early", lambda: 1)
        await ctx.sleep(60)

    async def cancel_the_worker():
        working.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await flow_.trigger({}).execute(store)
    with faults.injected(faults.at("after", "settlement.commit", cancel_the_worker)):
        working = asyncio.create_task(worker.run_until_idle())
        with pytest.raises(asyncio.CancelledError):
            await working
        await worker.close()

    assert [each.leased for each in await pgqrs.admin(store).workers()] == [0]


@pytest.mark.parametrize("how", ["return", "raise"])
async def test_what_a_handler_makes_of_the_workers_end_is_not_its_result(live_store, polling, how):
    begun = asyncio.Event()

    async def body():
        begun.set()
        await asyncio.sleep(60)

    async def handler(ctx, params):
        try:
            await ctx.step("work", body)
        except asyncio.CancelledError as error:
            if how == "return":
                return "cancelled"
            raise RuntimeError("interrupted") from error

    worker, task = await polling(handler)
    run_id = await flow_.trigger(None, max_attempts=1).execute(live_store)
    await asyncio.wait_for(begun.wait(), 5)
    worker.hand_back()
    await asyncio.wait_for(task, 30)
    back = await flow_.get_run(run_id, live_store)
    assert (back.status, back.last_error) == ("PENDING", None)


async def test_what_a_step_makes_of_the_workers_end_is_not_its_error(live_store, polling):
    begun = asyncio.Event()

    async def body():
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("aborted") from None

    async def handler(ctx, params):
        await ctx.step("work", body)

    worker, task = await polling(handler)
    run_id = await flow_.trigger(None, max_attempts=1).execute(live_store)
    await asyncio.wait_for(begun.wait(), 5)
    worker.hand_back()
    await asyncio.wait_for(task, 30)
    back = await flow_.get_run(run_id, live_store)
    assert (back.status, await back.steps()) == ("PENDING", [])


async def test_a_step_that_raised_a_group_is_run_again_by_the_runs_retry(run, clock):
    bodies = []

    def fails_once():
        bodies.append(1)
        if len(bodies) == 1:
            raise ExceptionGroup("both", [OSError("a"), ValueError("b")])

    async def handler(ctx, params):
        try:
            await ctx.step("work", fails_once)
        except* ValueError:
            pass
        return "done"

    done = await worked_off(run, clock, handler)
    assert (done.status, len(bodies)) == ("SUCCESS", 2)


async def test_attempts_of_a_step_whose_retry_is_given_up_are_counted(run, clock):
    bodies = []

    def fails():
        bodies.append(1)
        raise OSError("no")

    async def handler(ctx, params):
        async def background():
            await ctx.step("flaky", fails, retry=pgqrs.RetryPolicy(max_attempts=2, base=60))

        task = asyncio.create_task(background())
        for n in range(5):
            await asyncio.sleep(0.05)
            await ctx.step("work", lambda: 1)
            if n == 0:
                task.cancel()
            await ctx.sleep(60)

    await worked_off(run, clock, handler, forward=61, passes=10)
    assert len(bodies) <= 2


@pytest.mark.parametrize(
    "error", [SystemExit(3), asyncio.CancelledError("mine")], ids=lambda error: type(error).__name__
)
async def test_whatever_a_transaction_raises_is_its_error(run, clock, error):
    seen = []

    async def handler(ctx, params):
        async def work(tx):
            raise error

        try:
            await ctx.transaction("write", work)
        except Exception as caught:  # noqa: BLE001 - as users write it
            seen.append(type(caught).__name__)
        await ctx.sleep(60)
        return "done"

    done = await worked_off(run, clock, handler, passes=4)
    assert (done.status, done.last_error, set(seen)) == ("SUCCESS", None, {"StepFailed"})


async def test_gather_of_a_plain_handler_keeps_an_error_that_is_false(run):
    class Empty(Exception):
        def __len__(self):
            return 0

    def handler(ctx, params):
        def fails():
            raise Empty("nothing")

        [got] = ctx.gather(fails, return_exceptions=True)
        return type(got).__name__

    done = await soon(run(handler))
    assert done.output() == "Empty"


class NoNotes(Exception):
    @property
    def __notes__(self):
        raise RuntimeError("no notes")


class NeitherTrueNorFalse(Exception):
    def __bool__(self):
        raise ValueError("ambiguous, as an array is")


@pytest.mark.parametrize("error", [NoNotes, NeitherTrueNorFalse])
async def test_an_error_that_cannot_be_shown_ends_the_run_and_not_its_worker(run, clock, error):
    async def handler(ctx, params):
        raise error("odd")

    done = await worked_off(run, clock, handler, passes=4)
    assert (done.status, done.last_error != "worker_lost") == ("ERROR", True)
