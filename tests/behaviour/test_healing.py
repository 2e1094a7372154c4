"""Handlers that fail and are restarted: what they caught stays caught, what left them runs again."""

import asyncio
import contextlib

import pytest

import pgqrs


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    await store.create_workflow("part")
    return pgqrs.workflow("flow")


@pytest.fixture
async def work(store):
    """Executes what is due of both workflows, until nothing is."""
    made = []

    async def run(handler, part=None):
        workers = [await pgqrs.consumer("w", 1, "flow").handler(handler).create(store)]
        if part is not None:
            workers.append(await pgqrs.consumer("p", 1, "part").handler(part).create(store))
        made.extend(workers)
        for _ in range(5):
            for worker in workers:
                await worker.run_until_idle()

    yield run
    for worker in made:
        await worker.close()


class Shop:
    """Steps that are counted, and fail while they are broken."""

    def __init__(self, **broken):
        self.broken, self.calls = broken, []

    def __call__(self, name):
        async def body():
            self.calls.append(name)
            if error := self.broken.get(name):
                raise error
            return name

        return body


async def healed(store, flow, work, handler, shop, *, part=None, verb="restart", mended=()):
    """Fails once, is repaired, restarted, and ends."""
    run_id = await flow.trigger(max_attempts=1).execute(store)
    await work(handler, part)
    failed = await flow.get_run(run_id, store)
    assert failed.status == "ERROR", failed.waiting_for
    for name in mended:
        del shop.broken[name]
    await getattr(flow, verb)(run_id, store)
    await work(handler, part)
    return await flow.get_run(run_id, store)


async def test_a_step_whose_error_was_caught_is_not_run_again(store, flow, work):
    shop = Shop(charge=ValueError("declined"), report=OSError("no paper"))

    async def handler(ctx):
        try:
            await ctx.step("charge", shop("charge"))
        except ValueError as error:
            told = str(error)
        return told, await ctx.step("report", shop("report"))

    run = await healed(store, flow, work, handler, shop, mended=["report", "charge"])

    assert (run.status, run.output(tuple[str, str])) == ("SUCCESS", ("declined", "report"))
    assert shop.calls == ["charge", "report", "report"]


async def test_nothing_runs_again_when_the_handler_itself_failed(store, flow, work):
    shop, is_ready = Shop(charge=ValueError("declined")), False

    async def handler(ctx):
        with contextlib.suppress(ValueError):
            await ctx.step("charge", shop("charge"))
        if not is_ready:
            raise pgqrs.PermanentError("not yet")
        return "done"

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await work(handler)
    is_ready = True
    await flow.restart(run_id, store)
    await work(handler)

    assert (await flow.get_run(run_id, store)).output() == "done"
    assert shop.calls == ["charge"]


async def test_a_timeout_that_was_handled_does_not_wait_again(store, flow, work, clock):
    shop = Shop(report=OSError("no paper"))

    async def handler(ctx):
        with contextlib.suppress(pgqrs.WaitTimeout):
            await ctx.wait_for("answer", timeout=3600)
        return await ctx.step("report", shop("report"))

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await work(handler)
    clock.advance(3600)
    await work(handler)
    assert (await flow.get_run(run_id, store)).status == "ERROR"
    shop.broken.clear()
    await flow.restart(run_id, store)
    await work(handler)

    assert (await flow.get_run(run_id, store)).output() == "report"


async def test_a_timeout_that_ended_the_run_waits_again(store, flow, work, clock):
    async def handler(ctx):
        return await ctx.wait_for("answer", timeout=3600)

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await work(handler)
    clock.advance(3600)
    await work(handler)
    assert (await flow.get_run(run_id, store)).status == "ERROR"
    await flow.restart(run_id, store)
    await work(handler)
    await flow.signal(run_id, store, "answer", "yes")
    await work(handler)

    assert (await flow.get_run(run_id, store)).output() == "yes"


async def test_a_sleep_beside_the_failure_keeps_its_time(store, flow, work, clock):
    shop = Shop(report=OSError("no paper"))

    async def handler(ctx):
        sleeping = asyncio.ensure_future(ctx.sleep(3600))
        await ctx.wait_for("go")
        await ctx.step("report", shop("report"))
        await sleeping
        return "awake"

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await work(handler)
    await flow.signal(run_id, store, "go")
    await work(handler)
    assert (await flow.get_run(run_id, store)).status == "ERROR"
    shop.broken.clear()
    clock.advance(1800)
    await flow.restart(run_id, store)
    await work(handler)
    before = (await flow.get_run(run_id, store)).status
    clock.advance(1801)
    await work(handler)

    assert before == "PAUSED"
    assert (await flow.get_run(run_id, store)).output() == "awake"


async def in_a_map(ctx):
    return await ctx.map("part", ["a", "b", "c"])


async def in_a_gather(ctx):
    children = [await ctx.spawn("part", name) for name in "abc"]
    return list(await ctx.gather(*(child.result() for child in children)))


async def one_by_one(ctx):
    return [await (await ctx.spawn("part", name)).result() for name in "abc"]


async def in_a_task_group(ctx):
    children = [await ctx.spawn("part", name) for name in "abc"]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(child.result()) for child in children]
    return [task.result() for task in tasks]


FAN_OUTS = [in_a_map, in_a_gather]


@pytest.mark.parametrize("handler", [*FAN_OUTS, one_by_one], ids=lambda each: each.__name__)
async def test_failed_children_are_retried_and_their_parent_continues(store, flow, work, handler):
    shop = Shop(a=OSError("broken"), c=OSError("broken"))

    async def part(ctx, name: str):
        await ctx.step("prepare", shop(f"prepare {name}"))
        return await ctx.step("work", shop(name))

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await fail_for_good(store, work, handler, part)
    shop.broken.clear()
    await flow.retry_children(run_id, store)
    await work(handler, part)

    run = await flow.get_run(run_id, store)
    assert (run.status, run.output()) == ("SUCCESS", ["a", "b", "c"])
    assert [shop.calls.count(f"prepare {name}") for name in "abc"] == [1, 1, 1]


async def test_failed_children_of_a_task_group_are_healed_though_it_cancels_those_beside_the_first(store, flow, work):
    """A failure that is recorded while its task is cancelled counts as caught: another call heals that one."""
    shop = Shop(a=OSError("broken"), c=OSError("broken"))

    async def part(ctx, name: str):
        return await ctx.step("work", shop(name))

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await fail_for_good(store, work, in_a_task_group, part)
    shop.broken.clear()
    calls = 0
    while (await flow.get_run(run_id, store)).status == "ERROR":
        calls += 1
        await flow.retry_children(run_id, store)
        await work(in_a_task_group, part)

    assert (await flow.get_run(run_id, store)).output() == ["a", "b", "c"]
    assert calls <= 2


async def fail_for_good(store, work, handler, part):
    await work(handler, part)
    # Children are tried three times.
    for _ in range(3):
        store.database.clock.advance(600)
        await work(handler, part)


@pytest.mark.parametrize("handler", FAN_OUTS, ids=lambda each: each.__name__)
async def test_a_parent_is_healed_by_a_restart_once_its_children_are(store, flow, work, handler):
    shop = Shop(a=OSError("broken"), c=OSError("broken"))

    async def part(ctx, name: str):
        return await ctx.step("work", shop(name))

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await fail_for_good(store, work, handler, part)
    assert (await flow.get_run(run_id, store)).status == "ERROR"
    shop.broken.clear()
    children = pgqrs.workflow("part")
    for child in await children.runs(store, status="error"):
        await children.restart(child.run_id, store)
    await work(handler, part)
    await flow.restart(run_id, store)
    await work(handler, part)

    run = await flow.get_run(run_id, store)
    assert (run.status, run.output()) == ("SUCCESS", ["a", "b", "c"])


async def test_a_cancelled_child_that_ended_its_parent_is_retried(store, flow, work):
    async def handler(ctx):
        return await (await ctx.spawn("part")).result()

    async def part(ctx):
        return "fine"

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await work(handler)
    [child] = await pgqrs.workflow("part").runs(store)
    await pgqrs.workflow("part").cancel(child.run_id, store)
    await work(handler)
    assert (await flow.get_run(run_id, store)).status == "ERROR"
    assert await flow.retry_children(run_id, store) == [run_id, child.run_id]
    await work(handler, part)

    assert (await flow.get_run(run_id, store)).output() == "fine"


async def test_the_failure_of_a_child_that_was_caught_stays_caught(store, flow, work):
    shop = Shop(work=pgqrs.PermanentError("broken"), report=OSError("no paper"))

    async def handler(ctx):
        try:
            found = await (await ctx.spawn("part")).result()
        except pgqrs.ExecutionFailed:
            found = "nothing"
        return found, await ctx.step("report", shop("report"))

    async def part(ctx):
        return await ctx.step("work", shop("work"))

    run_id = await flow.trigger(max_attempts=1).execute(store)
    await work(handler, part)
    shop.broken.clear()
    [child] = await pgqrs.workflow("part").runs(store)
    await pgqrs.workflow("part").restart(child.run_id, store)
    await flow.restart(run_id, store)
    await work(handler, part)

    assert (await flow.get_run(run_id, store)).output(tuple[str, str]) == ("nothing", "report")
