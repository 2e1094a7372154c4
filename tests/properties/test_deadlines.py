"""Generated nests of asyncio's deadlines, groups, tasks and shields around a verb: each pass sees what the first saw.

The verb is slow in the first pass and recorded in the second, so a deadline that ends in the first only shows itself
as a difference. Either the run ends in ERROR before the handler has seen anything, or all passes have seen the same.
"""

import asyncio
import random

import pytest

import pgqrs

NESTS = 40
HOUR = 3600


async def gathered(work):
    return (await asyncio.gather(work, asyncio.sleep(0)))[0]


async def in_a_group(work):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
    return task.result()


async def in_a_task(work):
    return await asyncio.create_task(work)


async def waited_for(work):
    task = asyncio.create_task(work)
    await asyncio.wait([task])
    return task.result()


async def shielded(work):
    return await asyncio.shield(work)


async def as_completed(work):
    for each in asyncio.as_completed([work]):
        return await each
    return None


async def caught(work):
    try:
        return await work
    except ValueError as error:
        return str(error)


async def timed(work):
    async with asyncio.timeout(0.05):
        return await work


async def timed_by_wait_for(work):
    return await asyncio.wait_for(work, 0.05)


async def timed_by_wait(work):
    task = asyncio.create_task(work)
    _, late = await asyncio.wait([task], timeout=0.05)
    return "late" if late else task.result()


async def timed_by_as_completed(work):
    for each in asyncio.as_completed([work], timeout=0.05):
        return await each
    return None


AROUND = [gathered, in_a_group, in_a_task, waited_for, shielded, as_completed, caught]
DEADLINES = [timed, timed_by_wait_for, timed_by_wait, timed_by_as_completed]


def nest_of(seed):
    """From the inside to the outside; one of them is a deadline, and two may be."""
    chance = random.Random(seed)
    nest = [chance.choice(AROUND) for _ in range(chance.randint(0, 3))]
    for _ in range(chance.randint(1, 2)):
        nest.insert(chance.randint(0, len(nest)), chance.choice(DEADLINES))
    return nest


@pytest.mark.parametrize("seed", range(NESTS))
async def test_a_deadline_is_the_same_in_every_pass(store, clock, seed):
    nest, passes = nest_of(seed), []
    # The body has ended when the handler goes on, so that the second pass finds it recorded.
    told, ended = asyncio.Event(), asyncio.Event()

    async def slow():
        try:
            await told.wait()
            return "slow"
        finally:
            ended.set()

    async def handler(ctx, params):
        passes.append([])
        work = ctx.step("slow", slow)
        for around in nest:
            work = around(work)
        try:
            passes[-1].append(await work)
        except Exception as error:  # noqa: BLE001 - as users write it
            passes[-1].append(type(error).__name__)
        told.set()
        await ended.wait()
        await ctx.step("after", lambda: 1)
        await ctx.sleep(HOUR)

    await store.create_workflow("flow")
    run_id = await pgqrs.workflow("flow").trigger(max_attempts=1).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    first = await pgqrs.workflow("flow").get_run(run_id, store)
    clock.advance(HOUR)
    await worker.run_until_idle()
    done = await pgqrs.workflow("flow").get_run(run_id, store)
    await worker.close()

    if first.status == "ERROR":
        assert (passes, "use ctx." in first.last_error) == ([[]], True), first.last_error
    else:
        assert (str(done.status), passes[1:]) == ("SUCCESS", [passes[0]])
