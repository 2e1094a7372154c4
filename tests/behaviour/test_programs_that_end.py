"""A program that ends beside its worker hands the runs back: `asyncio.run` cancels every task that is left, theirs too."""

import asyncio
import threading

import anyio
import pytest

import pgqrs


class Handlers:
    """Each is in the body of a step when the program ends; with a compensation that must not happen."""

    def __init__(self):
        self.begun, self.ended, self.caught = threading.Event(), threading.Event(), []

    async def body(self):
        self.begun.set()
        if not self.ended.is_set():
            await asyncio.Event().wait()

    def plain_body(self):
        self.begun.set()
        self.ended.wait(30)

    async def one_branch(self, ctx: pgqrs.Context) -> int:
        try:
            await ctx.step("a", self.body)
        except asyncio.CancelledError:
            await ctx.step("refund", lambda: self.caught.append("refund"))
            raise
        finally:
            if not self.ended.is_set():
                await ctx.step("clean up", lambda: self.caught.append("clean up"))
        return ctx.attempt

    async def several_branches(self, ctx: pgqrs.Context) -> int:
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b"):
                group.create_task(ctx.step(name, self.body))
        return ctx.attempt

    def plain(self, ctx: pgqrs.SyncContext) -> int:
        ctx.step("a", self.plain_body)
        return ctx.attempt


async def returns():
    pass


async def fails():
    raise ValueError("of the program")


async def is_interrupted():
    raise KeyboardInterrupt


async def cancels_all_tasks():
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize("kind", ["one_branch", "several_branches", "plain"])
@pytest.mark.parametrize("ends", [returns, fails, is_interrupted, cancels_all_tasks])
def test_a_program_that_ends_beside_its_worker_hands_the_runs_back(tmp_path, ends, kind):
    dsn, polling = f"sqlite:///{tmp_path}/app.db", []
    handlers = Handlers()
    flow = pgqrs.workflow(name="flow")(getattr(handlers, kind))

    async def program():
        # Not closed, as it is when a program is interrupted.
        store = await pgqrs.connect(dsn)
        worker = await pgqrs.worker("w").workflows([flow]).create(store)
        await flow.trigger(max_attempts=1).execute(store)
        polling.append(asyncio.create_task(worker.poll_forever()))
        await asyncio.to_thread(handlers.begun.wait)
        await ends()

    async def again():
        async with pgqrs.connect(dsn) as store:
            [before] = await pgqrs.admin(store).runs()
            worker = await pgqrs.worker("w").workflows([flow]).create(store)
            await worker.run_until_idle()
            await worker.close()
            return before.status, (await flow.get_run(before.run_id, store)).output()

    raised = None
    try:
        asyncio.run(program())
    except (ValueError, KeyboardInterrupt) as error:
        raised = type(error)
    handlers.ended.set()

    assert raised is {fails: ValueError, is_interrupted: KeyboardInterrupt}.get(ends)
    assert asyncio.run(again()) == ("PENDING", 1)
    assert handlers.caught == []


@pytest.mark.parametrize("around", ["a direct call", "poll_forever"])
async def test_a_scope_of_anyio_that_is_cancelled_hands_the_run_back(store, around):
    """It cancels in each turn of the loop, as in web frameworks when a client goes away."""
    begun, ended, caught = asyncio.Event(), asyncio.Event(), []

    @pgqrs.workflow(name="flow")
    async def flow(ctx: pgqrs.Context, order: str) -> int:
        async def body():
            begun.set()
            await ended.wait()

        try:
            await ctx.step("a", body)
        except asyncio.CancelledError:
            await ctx.step("refund", lambda: caught.append("refund"))
            raise
        return ctx.attempt

    async def cancel(scope):
        await begun.wait()
        scope.cancel()

    worker = await pgqrs.worker("w").workflows([flow]).create(store)
    if around == "poll_forever":
        await flow.trigger("A1", max_attempts=1).execute(store)
    with anyio.CancelScope() as scope:
        cancelling = asyncio.create_task(cancel(scope))
        if around == "poll_forever":
            await worker.poll_forever()
        else:
            await flow.run("A1", key="A1", store=store)
    await cancelling
    [before] = await flow.runs(store)
    ended.set()
    again = await pgqrs.worker("w").workflows([flow]).create(store)
    await again.run_until_idle()
    await again.close()
    [after] = await flow.runs(store)

    assert scope.cancelled_caught
    assert before.status == "PENDING"
    assert (after.status, after.output(), caught) == ("SUCCESS", 1, [])
