"""Generated trees of tasks: a branch goes from state to state as allowed, and a run rests exactly when all of it waits.

Every wait of a program is one hour, and steps take no time by the clock: so the hour in which a step runs is the number
of waits before it. After each hour the steps that have run are compared with those that should have. A run that rests
too early lacks some; one that does not rest at all hangs.
"""

import asyncio
import itertools
import random
from collections import defaultdict

import pytest

import pgqrs
from pgqrs.engine.replay.branch_state import BranchState
from pgqrs.engine.replay.branches import Branch
from pgqrs.engine.replay.suspension import Resting

RUNNING, PARKED, WAITING, ENDED = BranchState
ORDINARY = {(RUNNING, PARKED), (RUNNING, WAITING), (RUNNING, ENDED), (PARKED, RUNNING), (WAITING, RUNNING)}
HOUR = 3600
# No program lasts so long.
NEVER = HOUR * 10_000
PROGRAMS = 25
IN_ORDER = ("step", "plain", "wait")
IN_TASKS = ("gather", "group", "task", "cancel")


class Programs:
    """Programs as lists of `[verb, *what]`, which a run gets as its input."""

    def __init__(self, seed, among):
        self._random = random.Random(seed)
        self._among = among
        self._number = itertools.count()

    def one(self, depth=3):
        return [self._part(depth) for _ in range(self._random.randint(1, 3))]

    def _part(self, depth):
        verb = self._random.choice(IN_ORDER + self._among if depth else IN_ORDER)
        match verb:
            case "step" | "plain":
                return [verb, f"s{next(self._number)}"]
            case "wait":
                return [verb]
            case "gather" | "group":
                return [verb, [self.one(depth - 1) for _ in range(self._random.randint(1, 3))]]
            case "task":
                return [verb, self.one(depth - 1), self.one(depth - 1)]
            case "cancel":
                steps = [["step", f"s{next(self._number)}"] for _ in range(self._random.randint(0, 2))]
                return [verb, [*steps, ["never"]], self.one(depth - 1)]


class Expected:
    """In which hour each step of a program runs, and in which the program ends."""

    def __init__(self, program):
        self.steps = defaultdict(set)
        # Of tasks that are cancelled: how far they come is a matter of timing.
        self.perhaps = set()
        self.end = self._walk(program, 0)

    def _walk(self, program, hour):
        for verb, *what in program:
            match verb:
                case "step" | "plain":
                    self.steps[hour].add(what[0])
                case "wait":
                    hour += 1
                case "gather" | "group":
                    hour = max(self._walk(each, hour) for each in what[0])
                case "task":
                    hour = max(self._walk(each, hour) for each in what)
                case "cancel":
                    self.perhaps.update(each[1] for each in what[0] if each[0] == "step")
                    hour = self._walk(what[1], hour)
        return hour

    def until(self, hour):
        return set().union(*(steps for at, steps in self.steps.items() if at <= hour))


class Observer:
    """Which steps have run, how branches changed their states, and which states they had when a run was put to rest."""

    def __init__(self, monkeypatch):
        self.effects = defaultdict(list)
        self.changes = set()
        self.at_rest = []
        become, rest = Branch._become, Resting._rest

        def becoming(branch, state):
            if branch.state is not state:
                self.changes.add((branch.state, state))
            become(branch, state)

        def resting(self_):
            self.at_rest.append({branch.state for branch in self_._run_pass.branches.live})
            rest(self_)

        monkeypatch.setattr(Branch, "_become", becoming)
        monkeypatch.setattr(Resting, "_rest", resting)

    async def handler(self, ctx, program):
        await self._play(ctx, program)

    async def _play(self, ctx, program):  # noqa: C901 - one case for each verb
        for verb, *what in program:
            match verb:
                case "step":
                    await ctx.step(what[0], self._effect, ctx.run_id, what[0])
                case "plain":
                    await ctx.step(what[0], self.effects[ctx.run_id].append, what[0])
                case "wait":
                    await ctx.sleep(HOUR)
                case "never":
                    await ctx.sleep(NEVER)
                case "gather":
                    await asyncio.gather(*(self._play(ctx, each) for each in what[0]))
                case "group":
                    async with asyncio.TaskGroup() as group:
                        for each in what[0]:
                            group.create_task(self._play(ctx, each))
                case "task":
                    task = asyncio.create_task(self._play(ctx, what[0]))
                    await self._play(ctx, what[1])
                    await task
                case "cancel":
                    task = asyncio.create_task(self._play(ctx, what[0]))
                    await self._play(ctx, what[1])
                    task.cancel()
                    await asyncio.wait([task])

    async def _effect(self, run_id, name):
        await asyncio.sleep(0)
        self.effects[run_id].append(name)

    def plain_handler(self, ctx, program):
        for verb, *what in program:
            match verb:
                case "step" | "plain":
                    ctx.step(what[0], self.effects[ctx.run_id].append, what[0])
                case "wait":
                    ctx.sleep(HOUR)
                case "gather":
                    ctx.gather(*(lambda each=each: self.plain_handler(ctx, each) for each in what[0]))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("kind", "among"), [("handler", IN_TASKS), ("plain_handler", ("gather",))])
async def test_a_run_rests_exactly_when_every_branch_waits(store, clock, monkeypatch, kind, among, seed):
    observer = Observer(monkeypatch)
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    programs = Programs(seed, among)
    expected = {}
    for _ in range(PROGRAMS):
        program = programs.one()
        expected[await flow.trigger(program).execute(store)] = Expected(program)
    worker = await pgqrs.consumer("w", 0, "flow").handler(getattr(observer, kind)).create(store)
    for hour in range(max(each.end for each in expected.values()) + 1):
        await worker.run_until_idle()
        for run_id, each in expected.items():
            run = await flow.get_run(run_id, store)
            ran = observer.effects[run_id]

            assert (run_id, run.status) == (run_id, "SUCCESS" if hour >= each.end else "PAUSED"), run.error
            assert (run_id, set(ran) - each.perhaps) == (run_id, each.until(hour))
            assert len(ran) == len(set(ran))
        clock.advance(HOUR)
    await worker.close()

    assert observer.changes <= ORDINARY
    assert observer.at_rest
    assert all(WAITING in states and PARKED not in states for states in observer.at_rest)
