"""What the linter says to write instead works: the same in the first pass and in every replay."""

import asyncio
import inspect
import textwrap

import pytest

import pgqrs
from pgqrs.lint import lint_source

ITEMS = list(range(6))


def found_in(function):
    """The codes of what the linter finds in a function."""
    source = "import asyncio\nimport pgqrs\n@pgqrs.workflow\n" + textwrap.dedent(inspect.getsource(function))
    return {finding.code for finding in lint_source(source)}


@pytest.fixture
def resize():
    """A step that ends the later the earlier its item comes; gives the item, and counts its calls."""
    calls = []

    async def step(item):
        calls.append(item)
        for _ in range(20 * (len(ITEMS) - item)):
            await asyncio.sleep(0)
        return item

    step.calls = calls
    return step


async def test_a_queue_of_asyncio_gives_branches_the_same_items_in_a_replay(run, clock, resize):
    """The reason why there is no rule against it."""
    passes = []

    async def handler(ctx, params):
        jobs = asyncio.Queue()
        for item in ITEMS:
            jobs.put_nowait(item)
        got = {}

        async def work():
            while not jobs.empty():
                item = jobs.get_nowait()
                got[item] = await ctx.step("resize", resize, item)

        await ctx.gather(work(), work(), work())
        passes.append(got)
        await ctx.sleep(60)

    waiting = await run(handler)
    clock.advance(60)
    await run(handler, run_id=waiting.run_id)

    assert found_in(handler) == set()
    assert passes[0] == {item: item for item in ITEMS}
    assert passes[1:] == [passes[0]]


async def test_one_task_for_each_item_and_a_semaphore_give_the_same_in_every_pass(run, clock, resize):
    passes, most = [], []

    async def handler(ctx, params):
        at_work = asyncio.Semaphore(3)
        working = set()

        async def work(item):
            async with at_work:
                working.add(item)
                most.append(len(working))
                value = await ctx.step("resize", resize, item)
                working.discard(item)
                return value

        got = await ctx.gather(*(work(item) for item in ITEMS))
        passes.append(got)
        await ctx.sleep(60)
        return got

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert found_in(handler) == set()
    assert (done.status, done.output()) == ("SUCCESS", ITEMS)
    assert passes == [ITEMS, ITEMS]
    assert sorted(resize.calls) == ITEMS
    assert max(most) == 3


async def test_map_with_a_limit_gives_the_same_in_every_pass(store, flow, clock):
    passes = []

    async def child(ctx, item: int) -> int:
        return item

    async def handler(ctx):
        got = await ctx.map("child", ITEMS, limit=3)
        passes.append(got)
        await ctx.sleep(60)
        return got

    await store.create_workflow("child")
    run_id = await flow.trigger().execute(store)
    worker = (
        await pgqrs.worker("w", prefixes=["flow", "child"]).workflows({"flow": handler, "child": child}).create(store)
    )
    await worker.run_until_idle()
    clock.advance(60)
    await worker.run_until_idle()
    await worker.close()

    assert found_in(handler) == set()
    assert (await flow.get_run(run_id, store)).output() == ITEMS
    assert passes == [ITEMS, ITEMS]


async def by_wait_for(ctx):
    try:
        return await ctx.wait_for("paid", timeout=60)
    except pgqrs.WaitTimeout:
        return "not paid"


async def by_first(ctx):
    winner = await ctx.first(paid=ctx.wait_for("paid"), late=ctx.sleep(60))
    return "not paid" if winner.key == "late" else winner.value


@pytest.mark.parametrize("handler", [by_wait_for, by_first])
@pytest.mark.parametrize("is_paid", [True, False])
async def test_a_wait_with_a_deadline_ends_by_the_databases_clock(store, flow, run, clock, handler, is_paid):
    waiting = await run(handler)
    assert waiting.status == "PAUSED"
    if is_paid:
        await flow.signal(waiting.run_id, store, "paid", "paid")
    else:
        clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert found_in(handler) == set()
    assert done.output() == ("paid" if is_paid else "not paid")


async def test_a_race_of_children_has_the_same_winner_in_every_pass(store, flow, clock):
    passes = []

    async def child(ctx, seconds: int) -> int:
        await ctx.sleep(seconds)
        return seconds

    async def handler(ctx):
        slow, fast = await ctx.spawn("child", 40), await ctx.spawn("child", 20)
        winner = await ctx.first(slow.result(), fast.result())
        passes.append(winner)
        await ctx.sleep(60)
        return winner.value

    await store.create_workflow("child")
    run_id = await flow.trigger().execute(store)
    worker = (
        await pgqrs.worker("w", prefixes=["flow", "child"]).workflows({"flow": handler, "child": child}).create(store)
    )
    for _ in range(4):
        await worker.run_until_idle()
        clock.advance(30)
    await worker.close()

    assert found_in(handler) == set()
    assert (await flow.get_run(run_id, store)).output() == 20
    assert set(passes) == {(1, 20)}
    assert len(passes) > 1


async def test_a_step_with_a_timeout_fails_the_same_way_in_every_pass(run, clock):
    passes = []

    async def hangs():
        await asyncio.Event().wait()

    async def handler(ctx, params):
        try:
            await ctx.step("hangs", hangs, timeout=0.01)
        except TimeoutError as error:
            passes.append(str(error))
        await ctx.sleep(60)
        return "gave up"

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert found_in(handler) == set()
    assert done.output() == "gave up"
    assert len(passes) == 2
    assert len(set(passes)) == 1


RACE = "await asyncio.wait([ctx.sleep(5), ctx.wait_for('go')], return_when=asyncio.FIRST_COMPLETED)"


def test_the_messages_name_what_is_tested_here():
    said = {
        finding.code: finding.message
        for line in ("jobs = queue.Queue()", "await asyncio.wait_for(ctx.sleep(9), 5)", RACE)
        for finding in lint_source(
            f"import asyncio\nimport queue\nimport pgqrs\n@pgqrs.workflow\nasync def flow(ctx):\n    {line}\n"
        )
    }

    for advice in ("ctx.first()", "the results of children", "ctx.gather() for steps"):
        assert advice in said["PGQ108"]
    for advice in ("ctx.map(..., limit=)", "ctx.gather()"):
        assert advice in said["PGQ110"]
    for advice in ("ctx.wait_for(timeout=)", "ctx.first(..., ctx.sleep())", "ctx.step(timeout=)"):
        assert advice in said["PGQ111"]
