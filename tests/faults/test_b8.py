"""B8: people and workers at one run at once; storms, starvation, nobody there."""

import asyncio
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.queries import Query

TERMINAL = ("succeeded", "failed", "cancelled")


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


def a_life():
    """A handler that does, in one pass or several, what a run can do; and what it has begun."""
    begun = []

    async def handler(ctx):
        await ctx.step("one", begun.append, "one")
        await ctx.emit("told")
        await ctx.sleep(60)
        await ctx.step("two", begun.append, "two")
        if ctx.attempt == 1:
            raise pgqrs.TransientError("once more", retry_after=5)
        return "done"

    return handler, begun


async def lived(store, clock, handler):
    """Until nothing more comes of it."""
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    for _ in range(4):
        await worker.run_until_idle()
        clock.advance(61)
    await worker.close()


async def points_of_a_life(store, flow, clock):
    """How often each call of the worker's is reached in the life of a run."""
    with faults.recorded() as points:
        await flow.trigger().execute(store)
        points.clear()
        await lived(store, clock, a_life()[0])
    names = ("claims.claim", "settlement.commit")
    return Counter(point for point in points if point.name in names and point.phase in ("before", "after"))


ACTS = ["cancel", "pause", "delete", "restart"]


@pytest.mark.row("B8.1", "B8.3")
@pytest.mark.backends("sqlite", "postgres")
@pytest.mark.parametrize("act", ACTS)
async def test_what_a_person_does_at_any_moment_of_a_runs_life_holds(store, flow, clock, act):
    counted = await points_of_a_life(store, flow, clock)
    moments = [(point, nth) for point, times in counted.items() for nth in range(1, times + 1)]
    assert len(moments) >= 12
    if not os.environ.get("PGQRS_SOAK"):
        # Each verb at moments of its own; all of them at all with PGQRS_SOAK=1.
        moments = moments[ACTS.index(act) :: len(ACTS)]
    for point, nth in moments:
        run_id = await flow.trigger().execute(store)
        handler, begun = a_life()
        seen = Seen(flow, store, run_id, begun, act)
        with faults.injected(at_the(nth, point, seen.act)):
            await lived(store, clock, handler)
        await _holds(seen, when=(point, nth))


def at_the(nth, point, do):
    left = nth

    def action(reached):
        nonlocal left
        left -= reached == point
        return do() if reached == point and left == 0 else None

    return action


@dataclass
class Seen:
    """What somebody did to a run, and what had begun by then."""

    flow: Any
    store: Any
    run_id: int
    begun: list[str]
    verb: str
    done: bool = False
    begun_before: int = 0

    async def act(self):
        try:
            await getattr(self.flow, self.verb)(self.run_id, self.store)
        except pgqrs.InvalidTransition:
            return
        self.done = True
        self.begun_before = len(self.begun)


async def _holds(seen, *, when):
    run = await seen.flow.get_run(seen.run_id, seen.store)
    if not seen.done or seen.verb == "restart":
        # Too late, or once more: it ends as it would have.
        assert (when, run.status) == (when, "SUCCESS")
        return
    events = [event.event_type for event in await seen.flow.events(seen.run_id, seen.store)]
    ends = [event for event in events if event in TERMINAL]
    assert (when, run.status) == (when, {"cancel": "CANCELLED", "pause": "PAUSED", "delete": run.status}[seen.verb])
    assert (when, len(ends)) == (when, 1 if run.status in ("SUCCESS", "CANCELLED", "ERROR") else 0)
    # The step that was about to begin may have; none does after that.
    assert (when, len(seen.begun) - seen.begun_before <= 1) == (when, True)


@pytest.mark.row("B8.5")
async def test_a_child_is_spawned_once_wherever_its_parent_is_interrupted(store, flow, clock):
    await store.create_workflow("child")

    async def parent(ctx):
        return await (await ctx.spawn("child", 1)).result()

    async def work():
        for name, handler in (("flow", parent), ("child", lambda ctx, n: n)):
            worker = await pgqrs.consumer("w", 0, name).handler(handler).create(store)
            await worker.run_until_idle()
            await worker.close()
        clock.advance(61)

    def break_off():
        raise OSError("the machine is gone")

    for phase in ("before", "after"):
        run_id = await flow.trigger(None, max_attempts=5).execute(store)
        with faults.injected(faults.at(phase, "claims.spawn", break_off)):
            await work()
        for _ in range(3):
            await work()
        children = await pgqrs.workflow("child").runs(store, parent_run_id=run_id)

        assert (await flow.get_run(run_id, store)).output() == 1
        assert len(children) == 1


@pytest.mark.row("B8.8")
async def test_runs_that_fail_together_come_back_spread_out(store, flow, clock):
    async def handler(ctx):
        raise ValueError("everything is down")

    await flow.trigger_many([None] * 100, max_attempts=3).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    rows = await store.database.fetch(Query("due", "select visible_after from pgqrs_messages order by 1"))
    seconds = [(row[0] - clock.now()).total_seconds() for row in rows]

    assert len(set(seconds)) > 50
    assert seconds[-1] - seconds[0] > 0.3 * seconds[0]


@pytest.mark.row("B8.9")
async def test_a_run_that_fails_again_and_again_does_not_hold_up_those_behind_it(store, flow):
    done = []

    async def handler(ctx, n: int):
        if n == 0:
            raise ValueError("poison")
        done.append(n)

    await flow.trigger_many(range(5)).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(1).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert done == [1, 2, 3, 4]


@pytest.mark.row("B8.10")
async def test_a_low_priority_waits_only_for_what_is_above_it(store):
    """There is no ageing: that is said in the guide. What is low gets its turn when the flood has been worked off."""
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await producer.enqueue("low")
    await producer.enqueue_many(range(20), priority=5)
    got = [message.payload for message in await consumer.dequeue(30)]

    assert got == [*range(20), "low"]


@pytest.mark.row("B8.11")
async def test_a_run_that_no_worker_has_code_for_is_left_alone_and_can_be_seen(store, flow):
    await store.create_workflow("other")
    run_id = await pgqrs.workflow("other").trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx: None).create(store)
    await worker.run_until_idle()
    metrics = await pgqrs.workflow("other").metrics(store)
    await worker.close()

    assert ((await pgqrs.workflow("other").get_run(run_id, store)).status, metrics.live_workers) == ("PENDING", 0)
    assert metrics.queue_depth == 1


@pytest.mark.row("B8.13")
async def test_waiting_for_a_result_costs_few_questions(live_store):
    await live_store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    runs = [await flow.get_run(each, live_store) for each in await flow.trigger_many([1] * 20).execute(live_store)]
    with faults.recorded() as points:
        waiting = [asyncio.create_task(run.result(1.2)) for run in runs]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(each) for each in outcomes} == {pgqrs.WaitTimeout}
    # One for all of them, now and then; each that comes asks at once.
    assert sum(point.phase == "sql" for point in points) <= 25
