"""Generated nests of tasks around steps, in a handler that catches nothing: another attempt runs again what failed.

Each step fails the first time it runs. An attempt that ends with the error of a step must have run that step: one that
ends with a recorded error was wasted, however many are left.
"""

import asyncio
import random

import pytest

import pgqrs

NESTS = 40


class Wrapped(Exception):
    pass


async def gathered(ctx, *works):
    await asyncio.gather(*works)


async def gathered_by_the_context(ctx, *works):
    await ctx.gather(*works)


async def in_a_group(ctx, *works):
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


async def in_tasks(ctx, *works):
    for task in [asyncio.create_task(work) for work in works]:
        await task


async def waited_for(ctx, *works):
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


async def wrapped(ctx, first, *others):
    try:
        await asyncio.gather(first, *others)
    except Exception as error:
        raise Wrapped from error


async def beside_a_pause(ctx, *works):
    await asyncio.gather(asyncio.sleep(0), *works)


FORMS = [gathered, gathered_by_the_context, in_a_group, in_tasks, waited_for, wrapped, beside_a_pause]


def nest(dice, depth, names):
    """A function that makes the work: a handler is called again in every pass."""
    if depth == 0 or dice.random() < 0.25:
        name = f"step{len(names)}"
        names.append(name)
        return lambda ctx, body: ctx.step(name, body, name)
    form = dice.choice(FORMS)
    parts = [nest(dice, depth - 1, names) for _ in range(dice.randint(1, 3))]
    return lambda ctx, body: form(ctx, *(part(ctx, body) for part in parts))


def causes_of(error):
    """The steps' errors that a group or a chain comes from."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from causes_of(each)
    elif isinstance(error, Wrapped):
        yield from causes_of(error.__cause__)
    else:
        yield str(error)


class Nested:
    """A handler made of one nest, and what its bodies did."""

    def __init__(self, seed):
        self.names, self.tried, self.of_this_pass, self.ended_with = [], [], [], []
        self._work = nest(random.Random(seed), 3, self.names)

    def body(self, name):
        self.of_this_pass.append(name)
        self.tried.append(name)
        if self.tried.count(name) == 1:
            raise ConnectionError(name)

    async def handler(self, ctx):
        self.of_this_pass.clear()
        try:
            await self._work(ctx, self.body)
        except Exception as error:
            self.ended_with = list(causes_of(error))
            raise


@pytest.mark.parametrize("how", ["retried", "restarted"])
async def test_no_attempt_ends_with_the_error_of_an_earlier_one(store, clock, how):
    nests = [Nested(seed) for seed in range(NESTS)]
    flow = pgqrs.workflow("flow")
    await store.create_workflow("flow")

    async def handler(ctx, seed):
        await nests[seed].handler(ctx)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    for seed, nested in enumerate(nests):
        at_most = len(nested.names) + 1
        run_id = await flow.trigger(seed, max_attempts=at_most if how == "retried" else 1).execute(store)
        for _ in range(at_most):
            await worker.run_until_idle()
            run = await flow.get_run(run_id, store)
            if run.status == "SUCCESS":
                break
            assert set(nested.ended_with) <= set(nested.of_this_pass), f"seed {seed}: a recorded error ended it"
            if how == "restarted":
                await flow.restart(run_id, store)
            clock.advance(3600)
        assert run.status == "SUCCESS", f"seed {seed}"
        assert sorted(nested.tried) == sorted(nested.names * 2), f"seed {seed}"
    await worker.close()
