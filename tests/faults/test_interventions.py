"""People who act on a run at any moment of its life, and parents that are interrupted there."""

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import pgqrs
from pgqrs import faults

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
