"""Replay: whatever the timing, a step keeps its id, and a completed one is not run again."""

import asyncio
import os
import random
from collections import Counter

import pytest

import pgqrs
from rig.lengths import by_length

SEED = int(os.environ.get("PGQRS_SEED", "0")) or random.randrange(2**32)
TIMINGS = by_length(short=200, long=1_000)
PER_BATCH = 50


class Crashed(Exception):
    pass


@pytest.fixture
async def store(clock):
    async with pgqrs.connect("sqlite://:memory:", clock=clock, max_attempts=1000) as store:
        await store.create_workflow("flow")
        yield store


@pytest.fixture
def flow():
    return pgqrs.workflow("flow")


async def work(store, handler):
    worker = await pgqrs.consumer("worker-1", 0, "flow").handler(handler).concurrency(PER_BATCH).create(store)
    await worker.run_until_idle()
    await worker.close()


async def yields(dice):
    for _ in range(dice.randrange(4)):
        await asyncio.sleep(0)


@pytest.mark.row("B2.11")
async def test_a_thousand_timings_give_the_same_ids_and_run_no_step_twice(store, flow, clock):  # noqa: C901 - a handler with all that a handler may do
    """The shape is the same each time; when things happen, and where it crashes or sleeps, is not."""
    passes: Counter[int] = Counter()
    ran: Counter[tuple[int, str]] = Counter()

    async def handler(ctx, timing: int):
        passes[timing] += 1
        # Another timing in every pass: a replay must not depend on the pass before.
        dice = random.Random(f"{SEED}-{timing}-{passes[timing]}")
        crash_at = dice.randrange(40) if passes[timing] < 4 else None
        begun = 0

        async def effect(what):
            nonlocal begun
            begun += 1
            if begun == crash_at:
                raise Crashed
            await yields(dice)
            ran[timing, what] += 1
            return what

        async def leaf(path):
            await yields(dice)
            return [await ctx.step("x", effect, f"{path}:{n}") for n in range(2)]

        async def helper(path):
            await yields(dice)
            got = [await ctx.step("x", effect, f"{path}:{n}") for n in range(3)]
            # Asked for in every replay at the same place; whether it is over yet is a matter of time.
            await ctx.sleep(naps.random() * 5)
            await yields(dice)
            got += await asyncio.gather(*(leaf(f"{path}.{n}") for n in range(2)))
            got.append(await ctx.step("x", effect, f"{path}:last"))
            return got

        naps = random.Random(timing)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(helper(f"t{n}")) for n in range(2)]
        got = await asyncio.gather(*(helper(f"g{n}") for n in range(3)))
        return [task.result() for task in tasks] + got

    ids, outputs = {}, {}
    for start in range(0, TIMINGS, PER_BATCH):
        timings = range(start, start + PER_BATCH)
        run_ids = await flow.trigger_many(timings).execute(store)
        left = dict(zip(run_ids, timings, strict=True))
        for _ in range(60):
            await work(store, handler)
            for run_id in list(left):
                run = await flow.get_run(run_id, store)
                assert run.status in ("RUNNING", "PAUSED", "SUCCESS"), f"seed {SEED}: {run.error}"
                assert "parked" not in (run.waiting_for or ""), f"seed {SEED}: {run.waiting_for}"
                if run.status == "SUCCESS":
                    timing = left.pop(run_id)
                    ids[timing] = {step.step_id for step in await run.steps()}
                    outputs[timing] = run.output()
            if not left:
                break
            clock.advance(10)

    assert len(ids) == TIMINGS, f"seed {SEED}"
    assert len(ids[0]) == 5 * (3 + 1 + 2 * 2 + 1), f"seed {SEED}"
    different = [timing for timing in ids if ids[timing] != ids[0] or outputs[timing] != outputs[0]]
    assert not different, f"seed {SEED}: timings {different[:5]} gave other ids or results"
    again = [key for key, times in ran.items() if times != 1]
    assert not again, f"seed {SEED}: ran twice: {again[:5]}"
    assert sum(passes.values()) > 3 * TIMINGS, f"seed {SEED}: hardly anything was replayed"


@pytest.mark.row("B8.2")
@pytest.mark.parametrize("when", ["before", "during", "after"])
async def test_many_signals_are_each_consumed_once_in_the_order_of_their_senders(live_store, when):
    # A thousand, in CI, where it is hardest: while they are consumed.
    senders, each = 20, by_length(short=20, long=50) if when == "during" else 10
    await live_store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    waiting = asyncio.Event()

    async def handler(ctx):
        waiting.set()
        return [await ctx.wait_for("go") for _ in range(senders * each)]

    async def send(sender):
        for n in range(each):
            await flow.signal(run_id, live_store, "go", [sender, n])

    worker = await pgqrs.consumer("worker-1", 0, "flow").handler(handler).create(live_store)
    run_id = await flow.trigger(None).execute(live_store)
    run = await flow.get_run(run_id, live_store)
    if when == "before":
        await asyncio.gather(*map(send, range(senders)))
    if when == "after":
        await worker.run_until_idle()
        assert (await run.refresh()).waiting_for == "go"
    polling = asyncio.create_task(worker.poll_forever())
    if when != "before":
        await waiting.wait()
        await asyncio.gather(*map(send, range(senders)))
    got = await run.result(60)
    worker.stop()
    await polling

    assert sorted(map(tuple, got)) == [(s, n) for s in range(senders) for n in range(each)]
    for sender in range(senders):
        assert [n for s, n in got if s == sender] == list(range(each))


@pytest.mark.parametrize("wait", ["sleep", "signal", "child"])
async def test_branches_after_a_wait_have_the_same_ids_in_a_replay(connect, clock, flow, wait):
    """What the engine itself does for a wait must not be counted among the branches of the handler."""
    store = await connect()
    await store.create_workflow("flow")
    await store.create_workflow("child")
    ran: Counter[int] = Counter()
    crashes = [True]

    async def handler(ctx):
        match wait:
            case "sleep":
                await ctx.sleep(60)
            case "signal":
                await ctx.wait_for("go")
            case "child":
                await (await ctx.spawn("child")).result()

        async def helper(n):
            await ctx.step("x", lambda: ran.update([n]))

        await asyncio.gather(helper(1), helper(2))
        if crashes and crashes.pop():
            raise Crashed

    async def child(ctx):
        return 1

    worker = await pgqrs.worker("w").workflows({"flow": handler, "child": child}).create(store)
    run_id = await flow.trigger(None).execute(store)
    if wait == "signal":
        await flow.signal(run_id, store, "go")
    for _ in range(3):
        await worker.run_until_idle()
        clock.advance(60)
    await worker.close()
    run = await flow.get_run(run_id, store)

    assert run.status == "SUCCESS"
    assert ran == {1: 1, 2: 1}
