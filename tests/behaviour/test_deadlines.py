"""asyncio's deadlines around what a replay finds recorded: refused, in every pass, and never the handler's error."""

import asyncio

import pytest

from pgqrs import faults

# The store call that each verb waits for.
CALLS = {
    "step": "settlement.commit",
    "emit": "settlement.commit",
    "transaction": "claims.transact",
    "wait_for": "claims.take_signal",
    "first": "claims.take_signal",
    "spawn": "claims.spawn",
    "now": "settlement.commit",
}


async def insert(tx):
    return 1


def asked(ctx, verb):
    match verb:
        case "step":
            return ctx.step("quick", lambda: 1)
        case "emit":
            return ctx.emit("shipped")
        case "transaction":
            return ctx.transaction("insert", insert)
        case "wait_for":
            return ctx.wait_for("go")
        case "first":
            return ctx.first(ctx.wait_for("go"))
        case "spawn":
            return ctx.spawn("child", 1)
        case _:
            return ctx.now()


async def by_timeout(work):
    async with asyncio.timeout(0.05):
        return await work


async def by_wait_for(work):
    return await asyncio.wait_for(work, 0.05)


async def by_wait(work):
    task = asyncio.ensure_future(work)
    _, late = await asyncio.wait([task], timeout=0.05)
    if late:
        task.cancel()
        raise TimeoutError
    return task.result()


@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("form", [by_timeout, by_wait_for, by_wait])
@pytest.mark.parametrize("verb", CALLS)
async def test_a_deadline_that_ends_a_verb_ends_the_run(run, clock, flow, store, verb, form, branches):
    await store.create_workflow("child")
    passes, went_on = [], asyncio.Event()

    async def handler(ctx, params):
        async def beside():
            await ctx.sleep(1)

        task = asyncio.create_task(beside()) if branches == 2 else None
        await asyncio.sleep(0)
        passes.append(ctx.attempt)
        try:
            with faults.injected(faults.at("before", CALLS[verb], went_on.wait)):
                await form(asked(ctx, verb))
        except Exception:  # noqa: BLE001 - as users write it
            pass
        finally:
            went_on.set()
        await ctx.sleep(60)
        if task is not None:
            await task

    run_id = await flow.trigger(max_attempts=2).execute(store)
    await flow.signal(run_id, store, "go", 1)
    for _ in range(3):
        done = await run(handler, run_id=run_id)
        clock.advance(60)

    assert (done.status, passes) == ("ERROR", [1])
    assert "asyncio.timeout" in done.last_error
    assert "use ctx." in done.last_error


async def test_a_deadline_inside_a_step_is_the_steps_own(run):
    """It once made a later cancellation, by a group, look like a deadline around a step."""

    async def late():
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"

    async def fail():
        raise ValueError("no seats")

    async def handler(ctx, params):
        found = [await ctx.step("late", late)]
        begun, told = asyncio.Event(), asyncio.Event()

        async def refuse():
            await begun.wait()
            await ctx.step("book", fail)

        async def slow():
            begun.set()
            return 1

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(refuse())
                await ctx.step("slow", slow)
                await ctx.step("slower", told.wait)
        except* ValueError as errors:
            found += map(str, errors.exceptions)
            told.set()
        return found

    done = await run(handler, max_attempts=1)

    assert (done.status, done.output()) == ("SUCCESS", ["late", "no seats"])


async def test_a_group_that_cancels_a_wait_for_is_no_deadline(run):
    async def fail():
        raise ValueError("no seats")

    async def handler(ctx, params):
        found, told = [], asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.wait_for(ctx.step("slow", told.wait), 3600))
                group.create_task(ctx.step("book", fail))
        except* ValueError as errors:
            found = [str(each) for each in errors.exceptions]
            told.set()
        return found

    done = await run(handler, max_attempts=1)

    assert (done.status, done.output()) == ("SUCCESS", ["no seats"])
    steps = {each.step_id.partition("@")[0]: str(each.status) for each in await done.steps()}
    assert steps == {"slow": "SUCCESS", "book": "ERROR"}


async def test_a_deadline_that_ends_a_wait_beside_a_step_ends_the_run(run):
    caught, told = [], asyncio.Event()

    async def handler(ctx, params):
        working = asyncio.create_task(ctx.step("slow", told.wait))
        try:
            async with asyncio.timeout(0.05):
                await ctx.wait_for("approval")
        except Exception as error:  # noqa: BLE001 - as users write it
            caught.append(type(error))
        finally:
            told.set()
        await working

    done = await run(handler)

    assert (done.status, caught) == ("ERROR", [])
    assert "use ctx." in done.last_error


async def around_a_group(work):
    async with asyncio.timeout(0.05), asyncio.TaskGroup() as group:
        group.create_task(work)


async def around_wait(work):
    async with asyncio.timeout(0.05):
        await asyncio.wait([asyncio.create_task(work)])


async def around_a_shield(work):
    async with asyncio.timeout(0.05):
        await asyncio.shield(work)


async def around_a_shielded_task(work):
    await asyncio.wait_for(asyncio.shield(asyncio.create_task(work)), 0.05)


async def around_a_task_of_a_task(work):
    async def outer():
        await asyncio.create_task(work)

    async with asyncio.timeout(0.05):
        await asyncio.wait([asyncio.create_task(outer())])


async def around_a_lock(work):
    lock = asyncio.Lock()

    async def locked():
        async with lock:
            await work

    task = asyncio.create_task(locked())
    await asyncio.sleep(0)
    async with asyncio.timeout(0.05), lock:
        await task


async def in_a_task(work):
    await asyncio.create_task(around_a_group(work))


async def between_several(work):
    for each in asyncio.as_completed([work], timeout=0.05):
        await each


@pytest.mark.parametrize(
    "form",
    [
        around_a_group,
        around_wait,
        around_a_shield,
        around_a_shielded_task,
        around_a_task_of_a_task,
        around_a_lock,
        in_a_task,
        between_several,
    ],
)
async def test_a_deadline_that_ends_the_wait_for_a_task_of_the_workflow_ends_the_run(run, form):
    caught, told = [], asyncio.Event()

    async def handler(ctx, params):
        try:
            await form(ctx.step("slow", told.wait))
        except Exception as error:  # noqa: BLE001 - as users write it
            caught.append(type(error))
        finally:
            told.set()
        await ctx.step("after", lambda: 1)

    done = await run(handler, max_attempts=1)

    assert (done.status, caught) == ("ERROR", [])
    assert "use ctx." in done.last_error


async def nothing_comes(ctx):
    async with asyncio.timeout(0.01):
        await asyncio.Queue().get()


async def no_task_asks(ctx):
    async with asyncio.timeout(0.01), asyncio.TaskGroup() as group:
        group.create_task(asyncio.Event().wait())


async def nothing_is_shielded(ctx):
    await asyncio.wait_for(asyncio.shield(asyncio.Event().wait()), 0.01)


async def a_socket_is_slow(ctx):
    beside = asyncio.create_task(ctx.sleep(60))
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)
    finally:
        beside.cancel()


@pytest.mark.parametrize("work", [nothing_comes, no_task_asks, nothing_is_shielded, a_socket_is_slow])
async def test_a_deadline_around_what_is_not_durable_is_the_handlers(run, work):
    async def handler(ctx, params):
        with pytest.raises(TimeoutError):
            await work(ctx)
        return await ctx.step("after", lambda: 1)

    done = await run(handler, max_attempts=1)

    assert (done.status, done.output()) == ("SUCCESS", 1)


async def test_a_shield_that_the_workflow_gives_up_is_no_deadline(run):
    told = asyncio.Event()

    async def handler(ctx, params):
        task = asyncio.create_task(ctx.step("slow", told.wait))
        shielded = asyncio.shield(task)
        await asyncio.sleep(0)
        shielded.cancel()
        told.set()
        return await task

    done = await run(handler, max_attempts=1)

    assert (done.status, done.output()) == ("SUCCESS", True)
