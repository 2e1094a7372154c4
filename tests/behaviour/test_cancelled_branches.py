"""Branches that the handler itself cancels: in every pass the same ones, at the same place, in the same order."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults


class FullError(Exception):
    """No room."""


async def full():
    raise FullError("full")


async def done():
    return 1


async def test_a_group_cancels_its_tasks_in_one_order(passes):
    """What was booked is cancelled in the order in which the tasks hear of it."""

    async def handler(ctx, note):
        never, undo = asyncio.Event(), []

        async def book(name):
            try:
                await ctx.step("book", never.wait)
            except asyncio.CancelledError:
                undo.append(name)
                raise

        names = [f"booking {n}" for n in range(12)]
        try:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(book(name))
                group.create_task(ctx.step("pay", full))
        except* FullError:
            never.set()
        for name in undo:
            note((name, await ctx.step("cancel", str, name)))
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert len(seen.passes[0]) == 12
    assert all(asked == got for each in seen.passes for asked, got in each)
    assert seen.passes[0] == seen.passes[1]


async def test_the_tasks_that_are_done_come_in_one_order(passes):
    async def handler(ctx, note):
        tasks = {asyncio.create_task(ctx.step("work", str, n)): n for n in range(12)}
        ready, _ = await asyncio.wait(tasks)
        for task in ready:
            note((tasks[task], await ctx.step("after", str, tasks[task])))
        await ctx.sleep(60)

    seen = await passes(handler)

    assert len(seen.passes[0]) == 12
    assert all(str(asked) == got for each in seen.passes for asked, got in each)


async def test_the_step_of_the_handler_itself_in_a_group_ends_when_a_task_fails(passes):
    async def handler(ctx, note):
        failed = asyncio.Event()

        async def flight():
            raise FullError("full")

        async def hotel():
            await failed.wait()
            return "ref-1"

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("flight", flight))
                note(await ctx.step("hotel", hotel))
        except* FullError:
            note("full")
        failed.set()
        await ctx.sleep(60)

    seen = await passes(handler)

    assert (seen.run.status, seen.run.last_error) == ("SUCCESS", None)
    assert seen.passes == [["full"], ["full"]]


async def insert(tx):
    return 7


async def child_result(ctx):
    return await (await ctx.spawn("child")).result()


async def noted_in(undo, name, work):
    try:
        await work
    except asyncio.CancelledError:
        undo.append(name)
        raise


@pytest.mark.parametrize(
    ("verb", "call", "until"),
    [
        # What is numbered before it is written holds up the failure, which has a higher number.
        (lambda ctx: ctx.spawn("child"), "claims.spawn", "failing"),
        (lambda ctx: ctx.wait_for("approval"), "claims.take_signal", "failing"),
        (lambda ctx: ctx.map("child", [1, 2]), "claims.spawn", "failing"),
        (lambda ctx: ctx.transaction("book", insert), "claims.transact", "cancelled"),
        (lambda ctx: ctx.first(ctx.wait_for("approval"), ctx.sleep(3600)), "claims.unread_signals", "cancelled"),
        (child_result, "runs.several", "cancelled"),
        (lambda ctx: ctx.progress(1, 2), "claims.show_progress", "cancelled"),
    ],
    ids=["spawn", "wait_for", "map", "transaction", "first", "child", "progress"],
)
async def test_a_branch_hears_at_once_that_it_is_cancelled_whatever_it_asks_for(passes, store, verb, call, until):
    """While the database is at it: in a replay, the branch is cancelled before it asks, or waits for its turn."""
    await store.create_workflow("child")
    asked = asyncio.Event()
    reached = {"failing": asyncio.Event(), "cancelled": asyncio.Event()}

    async def handler(ctx, note):
        never, undo = asyncio.Event(), []

        async def first():
            await ctx.step("seat", done)
            await verb(ctx)
            await ctx.step("after", never.wait)

        async def pay():
            await asked.wait()
            reached["failing"].set()
            raise FullError("full")

        works = {"first": first(), "second": ctx.step("book", never.wait)}
        tasks = [asyncio.create_task(noted_in(undo, *each)) for each in works.items()]
        try:
            await ctx.step("pay", pay)
        except FullError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        never.set()
        note(undo)
        reached["cancelled"].set()
        for _ in range(3):
            await asyncio.gather(*(ctx.step("mail", done) for _ in range(3)))
        await ctx.sleep(60)

    def hold(point):
        if point != ("before", call) or asked.is_set():
            return None
        asked.set()
        return reached[until].wait()

    async with asyncio.timeout(30):
        with faults.injected(hold):
            seen = await passes(handler)

    assert asked.is_set()
    assert seen.run.last_error is None
    assert seen.passes == [[["first", "second"]], [["first", "second"]]]


async def test_a_transaction_in_a_cancelled_branch_does_not_hold_up_the_others(passes):
    async def handler(ctx, note):
        async def book():
            await ctx.step("seat", done)
            await ctx.transaction("book", insert)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(book())
                group.create_task(ctx.step("hotel", full))
        except* FullError:
            note("full")
        for _ in range(3):
            note(await asyncio.gather(*(ctx.step("mail", done) for _ in range(3))))
        await ctx.sleep(60)

    async with asyncio.timeout(30):
        seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert seen.passes == [["full", *[[1, 1, 1]] * 3]] * 2


async def test_a_retry_runs_again_what_failed_in_a_cancelled_branch(passes):
    calls = []

    async def handler(ctx, note):
        async def fails_once(name):
            calls.append(name)
            if calls.count(name) == 1:
                raise FullError(name)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("flight", fails_once, "flight"))
                group.create_task(ctx.step("hotel", fails_once, "hotel"))
        except BaseExceptionGroup:
            await ctx.sleep(60)
            raise

    seen = await passes(handler, times=4, max_attempts=2)

    assert (seen.run.status, seen.run.attempt) == ("SUCCESS", 2)
    assert sorted(calls) == ["flight", "flight", "hotel", "hotel"]


async def worked(store, clock, handlers, hold, times=1):
    """Three rounds of work, a minute apart, in which each handler is served so many times; gives the run of `flow`."""
    for name in handlers:
        await store.create_workflow(name)
    run_id = await pgqrs.workflow("flow").trigger().execute(store)
    workers = [await pgqrs.consumer(name, 0, name).handler(each).create(store) for name, each in handlers.items()]
    with faults.injected(hold):
        for _ in range(3):
            for worker in workers * times:
                await worker.run_until_idle()
            clock.advance(61)
    for worker in workers:
        await worker.close()
    return await pgqrs.workflow("flow").get_run(run_id, store)


async def test_a_child_of_a_cancelled_branch_does_not_keep_the_run_from_waking(store, clock):
    asked, told, passes = asyncio.Event(), asyncio.Event(), []

    async def boom():
        await asked.wait()
        raise ValueError

    async def flow(ctx):
        passes.append(1)

        async def spawner():
            await ctx.step("a", str, 1)
            await ctx.spawn("slow")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("boom", boom))
                group.create_task(spawner())
        except* ValueError:
            told.set()
        child = await ctx.spawn("quick")
        await ctx.sleep(60)
        return await child.result()

    async def slow(ctx):
        await ctx.pause("never")

    async def quick(ctx):
        await ctx.sleep(100)
        return 7

    def hold(point):
        if point != ("before", "workflows.get") or not passes or told.is_set():
            return None
        asked.set()
        return told.wait()

    run = await worked(store, clock, {"flow": flow, "slow": slow, "quick": quick}, hold, times=2)

    assert run.status == "SUCCESS"


async def test_a_map_with_a_limit_is_cancelled_at_the_same_place_in_a_replay(store, clock):
    looking, told, noted = asyncio.Event(), asyncio.Event(), []

    async def boom():
        await looking.wait()
        raise ValueError

    async def flow(ctx):
        noted.append([])

        async def mapper():
            try:
                await ctx.map("quick", [1, 2, 3], limit=1)
            except asyncio.CancelledError:
                noted[-1].append(await ctx.step("undo", str, "undone"))
                raise

        async def failing():
            await ctx.sleep(10)
            await ctx.step("boom", boom)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(mapper())
                group.create_task(failing())
        except* ValueError:
            told.set()
        await ctx.sleep(60)

    async def quick(ctx, n):
        return n

    def hold(point):
        if point != ("before", "runs.several") or len(noted) != 2 or told.is_set():
            return None
        looking.set()
        return told.wait()

    run = await worked(store, clock, {"flow": flow, "quick": quick}, hold)

    assert (run.status, run.waiting_for) == ("SUCCESS", None)
    assert noted == [[], ["undone"], ["undone"]]


async def test_a_branch_hears_of_its_cancellation_at_once_while_places_are_lost(passes):
    asked, failed, told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(ctx, note):
        never, undo = asyncio.Event(), []

        async def flaky():
            failed.set()
            raise KeyError("flaky")

        async def boom():
            await asked.wait()
            raise ValueError

        works = {"first": ctx.step("flaky", flaky), "second": never.wait()}
        tasks = [asyncio.create_task(noted_in(undo, *each)) for each in works.items()]
        await ctx.step("other", failed.wait)
        if tasks[0].done():
            await tasks[0]
        try:
            await ctx.step("boom", boom)
        except ValueError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        told.set()
        note(undo)
        await ctx.sleep(60)

    def hold(point):
        if point != ("before", "claims.lose_places") or asked.is_set():
            return None
        asked.set()
        return told.wait()

    async with asyncio.timeout(30):
        with faults.injected(hold):
            seen = await passes(handler, times=3, max_attempts=3)
    assert asked.is_set()
    assert seen.passes == [[], [["first", "second"]], [["first", "second"]]]


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="Python 3.12 is the first that has it")
async def test_a_handler_is_the_same_where_the_application_makes_tasks_eager(passes):
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)

    async def handler(ctx, note):
        never = asyncio.Event()

        async def book(number):
            note(f"begun {number}")
            try:
                await ctx.step("book", never.wait)
            except asyncio.CancelledError:
                note(f"cancelled {number}")
                raise

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(12):
                    group.create_task(book(number))
                group.create_task(ctx.step("pay", full))
                note("all made")
        except* FullError:
            never.set()
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert seen.passes[0][:2] == ["all made", "begun 0"]
    assert seen.passes[0] == seen.passes[1]
    assert len(seen.passes[0]) == 25
