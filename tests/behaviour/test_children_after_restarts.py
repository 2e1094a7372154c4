"""After a restart the handler may go another way: it gets the children that it asks for there, and no others."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults


@pytest.fixture
async def restarted(run, store, flow):
    """Works a handler off, restarts its run `times` times, and gives the run and the children by workflow."""
    for name in ("refund", "ship"):
        await store.create_workflow(name)

    async def work(handler, times=1, mend=lambda: None):
        found = await run(handler, max_attempts=1)
        for _ in range(times):
            assert found.status == "ERROR", found.waiting_for
            mend()
            await flow.restart(found.run_id, store)
            found = await run(handler, run_id=found.run_id)
        children = {name: await pgqrs.workflow(name).runs(store) for name in ("refund", "ship")}
        return found, {name: [each.input for each in runs] for name, runs in children.items()}

    return work


def booking():
    """A step that fails until it is mended."""
    seats = []

    def book():
        if not seats:
            raise pgqrs.PermanentError("no seats")

    return book, lambda: seats.append("1A")


@pytest.mark.parametrize("other", [("ship", "order"), ("refund", "another order")])
async def test_another_child_is_started_where_a_failed_attempt_had_started_one(restarted, clock, run, other):
    book, mend = booking()

    async def handler(ctx, params):
        try:
            await ctx.step("book", book)
        except pgqrs.PermanentError:
            await ctx.spawn("refund", "order")
            raise
        child = await ctx.spawn(*other)
        await ctx.sleep(60)
        return child.run_id

    waiting, children = await restarted(handler, mend=mend)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert done.status == "SUCCESS", done.waiting_for
    assert sorted((name, each) for name, inputs in children.items() for each in inputs) == sorted(
        [("refund", "order"), other]
    )
    assert done.output() == waiting.run_id + 2


async def test_the_same_in_a_branch(restarted):
    book, mend = booking()

    async def handler(ctx, params):
        async def branch():
            try:
                await ctx.step("book", book)
            except pgqrs.PermanentError:
                await ctx.spawn("refund", "order")
                raise
            return (await ctx.spawn("ship", "order")).run_id

        return (await asyncio.gather(branch(), ctx.step("other", lambda: 1)))[0]

    done, children = await restarted(handler, mend=mend)

    assert (done.status, children) == ("SUCCESS", {"refund": ["order"], "ship": ["order"]})


async def test_a_child_that_a_failed_attempt_has_started_is_not_started_again_on_the_same_way(restarted):
    book, _ = booking()

    async def handler(ctx, params):
        try:
            await ctx.step("book", book)
        except pgqrs.PermanentError:
            await ctx.spawn("refund", {"order": 7, "items": {"a", "b"}})
            raise

    done, children = await restarted(handler, times=2)

    assert done.status == "ERROR"
    assert len(children["refund"]) == 1


async def test_children_that_were_started_beside_a_failure_are_not_started_again(restarted):
    book, mend = booking()

    async def handler(ctx, params):
        async def beside():
            return [(await ctx.spawn("ship", number)).run_id for number in range(3)]

        return (await asyncio.gather(ctx.step("book", book), beside()))[1]

    done, children = await restarted(handler, mend=mend)

    assert (done.status, sorted(children["ship"])) == ("SUCCESS", [0, 1, 2])


async def test_while_the_children_of_a_failed_attempt_are_looked_at_nothing_overtakes_what_follows(
    run, store, flow, clock
):
    await store.create_workflow("ship")
    book, mend = booking()
    passes = []

    async def handler(ctx, params):
        seen = []
        passes.append(seen)
        failed = None

        async def deliver():
            await ctx.spawn("ship", "order")
            seen.append(await ctx.step("note", lambda: "noted"))

        try:
            await ctx.step("book", book)
        except pgqrs.PermanentError as error:
            failed = error
        delivering = asyncio.create_task(deliver())
        if failed is not None:
            await delivering
            raise failed
        seen.append(await ctx.wait_for("go"))
        await delivering

    async def take_long():
        for _ in range(100):
            await asyncio.sleep(0)

    failed = await run(handler, max_attempts=1)
    mend()
    await flow.restart(failed.run_id, store)
    waiting = await run(handler, run_id=failed.run_id)
    await flow.signal(waiting.run_id, store, "go", "went")
    with faults.injected(faults.at("after", "runs.several", take_long, times=100)):
        done = await run(handler, run_id=waiting.run_id)

    assert (waiting.status, done.status) == ("PAUSED", "SUCCESS")
    assert passes == [["noted"], ["noted"], ["noted", "went"]]
