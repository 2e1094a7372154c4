"""The error of a step in a task, once the handler has got it, stays caught: no retry and no restart runs the step again."""

import asyncio

import pytest


class Declined(Exception):
    pass


async def by_return_exceptions(ctx, work):
    return (await asyncio.gather(work, return_exceptions=True))[0]


async def by_the_contexts_gather(ctx, work):
    return (await ctx.gather(work, return_exceptions=True))[0]


async def by_gather(ctx, work):
    try:
        return await asyncio.gather(work)
    except Declined as error:
        return error


async def by_await(ctx, work):
    task = asyncio.create_task(work)
    try:
        return await task
    except Declined as error:
        return error


async def by_wait(ctx, work):
    task = asyncio.create_task(work)
    await asyncio.wait([task])
    return task.exception()


async def by_as_completed(ctx, work):
    for each in asyncio.as_completed([work]):
        try:
            await each
        except Declined as error:
            return error
    return None


async def by_a_group(ctx, work):
    found = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(work)
    except* Declined as errors:
        found += errors.exceptions
    return found[0]


FORMS = [by_return_exceptions, by_the_contexts_gather, by_gather, by_await, by_wait, by_as_completed, by_a_group]


@pytest.fixture
def effects():
    return []


@pytest.fixture
def charge(effects):
    def charge():
        effects.append("charge")
        raise Declined("no funds")

    return charge


@pytest.fixture
def book(effects):
    """Fails the first time."""

    def book():
        effects.append("book")
        if effects.count("book") == 1:
            raise ConnectionError("no answer")
        return "booked"

    return book


@pytest.fixture(params=["retried", "restarted"])
def tried_twice(request, run, flow, store, clock):
    """Works a handler off, which fails, and then once more."""

    async def work(handler):
        failed = await run(handler, max_attempts=2 if request.param == "retried" else 1)
        clock.advance(3600)
        if request.param == "restarted":
            await flow.restart(failed.run_id, store)
        return await run(handler, run_id=failed.run_id)

    return work


@pytest.mark.parametrize("form", FORMS)
async def test_a_caught_error_of_a_task_stays_caught(tried_twice, effects, charge, book, form):
    async def handler(ctx, params):
        error = await form(ctx, ctx.step("charge", charge))
        (booked,) = await asyncio.gather(ctx.step("book", book))
        return [str(error), booked]

    done = await tried_twice(handler)

    assert (done.status, done.output()) == ("SUCCESS", ["no funds", "booked"])
    assert effects == ["charge", "book", "book"]


async def test_a_caught_error_of_a_thread_stays_caught(tried_twice, effects, charge, book):
    def handler(ctx, params):
        (error,) = ctx.gather(lambda: ctx.step("charge", charge), return_exceptions=True)
        (booked,) = ctx.gather(lambda: ctx.step("book", book))
        return [str(error), booked]

    done = await tried_twice(handler)

    assert (done.status, done.output()) == ("SUCCESS", ["no funds", "booked"])
    assert effects == ["charge", "book", "book"]


async def of_one_gather(first, second):
    await asyncio.gather(first, second)


async def of_one_wait(first, second):
    tasks = [asyncio.create_task(first), asyncio.create_task(second)]
    await asyncio.wait(tasks)
    tasks[0].result()


@pytest.mark.parametrize("form", [of_one_gather, of_one_wait])
async def test_what_failed_beside_and_was_seen_by_no_part_of_the_handler_runs_again(run, clock, form):
    tried = []

    def fail_once(name):
        tried.append(name)
        if tried.count(name) == 1:
            raise ConnectionError(name)

    async def handler(ctx, params):
        await form(ctx.step("flight", fail_once, "flight"), ctx.step("hotel", fail_once, "hotel"))

    failed = await run(handler, max_attempts=2)
    clock.advance(3600)
    done = await run(handler, run_id=failed.run_id)

    assert done.status == "SUCCESS"
    assert sorted(tried) == ["flight", "flight", "hotel", "hotel"]


async def test_a_task_whose_error_nobody_asks_for_is_not_logged_twice(run, caplog):
    """asyncio tells of such tasks when they are gone; the history of the run tells of the step."""

    async def handler(ctx, params):
        left = asyncio.create_task(ctx.step("charge", int, "no number"))
        await asyncio.wait([left])
        del left

    done = await run(handler, max_attempts=1)

    assert done.status == "SUCCESS"
    assert [record for record in caplog.records if record.name == "asyncio"] == []
