"""The record of a step: what the handler is given is what is on record, once it is on record, and while it is in the code."""

import asyncio
from dataclasses import dataclass

import pgqrs
from pgqrs import faults


@dataclass
class Receipt:
    number: int


async def test_a_step_gives_the_same_the_first_time_and_in_a_replay(run, clock):
    seen = []

    async def buy():
        return Receipt(7)

    async def handler(ctx, params):
        seen.append(await ctx.step("buy", buy))
        await ctx.sleep(60)

    asleep = await run(handler)
    clock.advance(60)
    await run(handler, run_id=asleep.run_id)

    assert seen[0] == seen[1]
    assert type(seen[0]) is type(seen[1])


async def test_a_handler_goes_on_only_when_its_step_is_durable(run):
    committing, may_commit = asyncio.Event(), asyncio.Event()
    went_on = []

    async def buy():
        return 1

    async def handler(ctx, params):
        went_on.append(await ctx.step("buy", buy))

    async def stall():
        committing.set()
        await may_commit.wait()

    with faults.injected(faults.at("before", "settlement.commit", stall)):
        running = asyncio.create_task(run(handler))
        await asyncio.wait_for(committing.wait(), 30)
        for _ in range(100):
            await asyncio.sleep(0)
        before = list(went_on)
        may_commit.set()
        await running

    assert (before, went_on) == ([], [1])


async def test_code_that_has_lost_a_recorded_step_is_told_so_at_its_end(run, clock):
    async def before(ctx, params):
        await ctx.step("charge", lambda: 1)
        await ctx.sleep(60)
        await ctx.step("ship", lambda: 1)
        await ctx.sleep(60)

    async def after(ctx, params):
        await ctx.step("charge", lambda: 1)
        await ctx.sleep(60)

    asleep = await run(before)
    clock.advance(60)
    asleep = await run(before, run_id=asleep.run_id)
    clock.advance(60)
    parked = await run(after, run_id=asleep.run_id)

    assert parked.status == "PAUSED"
    assert "'ship'" in parked.waiting_for


async def test_a_step_that_failed_for_good_publishes_nothing(store, run):
    async def ship(ctx):
        await ctx.emit("order.shipped")
        raise pgqrs.PermanentError("after the emit")

    async def handler(ctx, params):
        await ctx.step("ship", ship, ctx)

    failed = await run(handler)

    assert failed.status == "ERROR"
    assert await pgqrs.admin(store).outbox.unpublished() == []


@dataclass
class Row:
    """A value whose own code raises: a row whose session is closed."""

    number: int

    def __getattribute__(self, name):
        if name == "number":
            raise RuntimeError("the session is closed")
        return super().__getattribute__(name)


class Declined(Exception):
    def __init__(self, row):
        super().__init__("declined")
        self.row = row
        self.code = 7


async def test_an_error_with_an_attribute_that_cannot_be_read_keeps_its_class(run):
    def fails():
        raise Declined(Row(1))

    async def handler(ctx, params):
        try:
            await ctx.step("pay", fails)
        except Declined as error:
            return error.code

    done = await run(handler)

    assert (done.status, done.output()) == ("SUCCESS", 7)
