"""The transition table at the head of `db/runs/transitions.py`, walked: from every status every verb, with live and stale tokens."""

import itertools
import os
import random
import re

import pytest

import pgqrs
from pgqrs.db.queries import Query
from pgqrs.db.runs import claims, settlement, transitions, triggers
from pgqrs.db.runs.records import Ended, RunFence, RunWrite, StepRecord, Suspended
from pgqrs.db.tables import workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.types import ENDED, RunStatus, StepStatus

# The walks record steps wherever they like.
pytestmark = pytest.mark.breaks("I4")

SEED = int(os.environ.get("PGQRS_SEED", "0")) or random.randrange(2**32)
LEASE = 10
S = RunStatus
LIVE = {S.PENDING, S.RUNNING, S.PAUSED}

ENDS = {
    "succeed": Ended(S.SUCCESS, output='"done"'),
    "fail": Ended(S.ERROR, error='{"type": "X"}', last_error="X"),
    "retry": Suspended(S.RUNNING, delay=5, count_attempt=True, last_error="again"),
    "hand_back": Suspended(S.PENDING),
    "sleep": Suspended(S.PAUSED, delay=60, waiting_for="sleep"),
    "wait": Suspended(S.PAUSED, delay=60, waiting_for="go", signals=("go",)),
}

# verb -> where it leads from where. Whatever is not here is refused, or leaves the status as it is.
MOVES = {
    "claim": dict.fromkeys(LIVE, S.RUNNING),
    "succeed": {S.RUNNING: S.SUCCESS},
    "fail": {S.RUNNING: S.ERROR},
    "retry": {S.RUNNING: S.RUNNING},
    "hand_back": {S.RUNNING: S.PENDING},
    "sleep": {S.RUNNING: S.PAUSED},
    "wait": {S.RUNNING: S.PAUSED},
    "end_lost": {S.RUNNING: S.ERROR},
    "pause": {S.PENDING: S.PAUSED, S.RUNNING: S.PAUSED},
    "resume": {S.PAUSED: S.PENDING},
    "signal": {},
    "cancel": dict.fromkeys(LIVE, S.CANCELLED),
    # RUNNING only when its lease has expired.
    "restart": dict.fromkeys((S.ERROR, S.RUNNING, S.CANCELLED), S.PENDING),
    "reset": dict.fromkeys((S.ERROR, S.RUNNING, S.PAUSED, S.CANCELLED, S.SUCCESS), S.PENDING),
    "delete_and_restore": {S.RUNNING: S.PENDING},
}
# What may change the rows of a run that has ended.
REWRITES = {"restart", "reset", "delete_and_restore"}
REFUSED_WHEN_ENDED = {"pause", "resume", "signal"}
_NUMBERS = itertools.count()


class Walker:
    """One run, every verb of the lifecycle, and every token that was ever given for it."""

    def __init__(self, store, clock):
        self.db, self.clock = store.database, clock
        self.held: RunFence | None = None
        self.fences: list[RunFence] = []

    async def begin(self, *, max_attempts=100):
        # A queue of its own: its claims find nobody else's run.
        self.workflow = await workflows.create(self.db, f"flow-{next(_NUMBERS)}")
        self.worker_id = await workers.register(
            self.db, queue_id=self.workflow.queue_id, name="w", port=0, info={"pid": 1}
        )
        new = triggers.NewRuns(self.workflow.workflow_id, self.workflow.queue_id, ["null"], max_attempts=max_attempts)
        [self.run_id] = await triggers.trigger(self.db, new)
        return self

    async def rows(self):
        """All that is on record of the run, as it is."""
        tables = ("workflow_runs", "messages", "workflow_steps", "signals")
        found = {
            table: await self.db.fetch(
                Query(table, f"select * from pgqrs_{table} where run_id = {self.run_id} order by 1, 2")
            )
            for table in tables
        }
        everything = await self.db.fetch(Query("runs", "select run_id from pgqrs_workflow_runs order by 1"))
        return {**{t: [tuple(row) for row in rows] for t, rows in found.items()}, "all": [r[0] for r in everything]}

    async def status(self):
        [[status]] = await self.db.fetch(
            Query("status", f"select status from pgqrs_workflow_runs where run_id = {self.run_id}")
        )
        return S(status)

    async def do(self, verb):  # noqa: C901 - a case for each verb
        """Carries it out, as whoever is entitled to it would."""
        db, run_id = self.db, self.run_id
        match verb:
            case "claim":
                await self.claim()
            case "end_lost":
                await claims.end_lost(db, [self.workflow.queue_id], error="{}", last_error="worker_lost")
                self.held = self.held if await self.status() not in ENDED else None
            case "cancel":
                await transitions.cancel(db, run_id, reason="enough")
                self.held = None
            case "pause":
                await transitions.pause(db, run_id, reason="wait")
                self.held = None
            case "resume":
                await transitions.resume(db, run_id, step_id=None, output=None)
            case "signal":
                await transitions.signal(db, run_id, name="go", payload="1")
            case "restart":
                await transitions.restart(db, run_id)
                self.held = None
            case "reset":
                await transitions.reset(db, run_id, from_step=None)
                self.held = None
            case "delete_and_restore":
                await transitions.delete(db, run_id, reason="by mistake")
                self.held = None
                before = await self.rows()
                self.clock.advance(3600)
                assert await self.claim() == []
                await self.assert_stale_tokens_change_nothing()
                assert await self.rows() == before
                await transitions.restore(db, run_id)
            case _:
                if self.held is not None:
                    write = RunWrite(self.held, (_step(verb),), ENDS[verb])
                    assert await settlement.commit(db, [write]) == {self.held}
                    self.held = None

    async def claim(self):
        found = await claims.claim(
            self.db, [Source(self.workflow.queue_id, LEASE)], worker_id=self.worker_id, batch=1
        )
        if found:
            self.held = found[0].fence
            assert self.held not in self.fences, "a token was given twice"
            self.fences.append(self.held)
        return found

    async def assert_stale_tokens_change_nothing(self):
        stale = {fence for fence in self.fences if fence != self.held}
        stale |= {(*fence[:-1], token) for fence in self.fences for token in (0, 10_000)}
        before = await self.rows()
        for fence in sorted(stale):
            for end in (None, *ENDS.values()):
                assert await settlement.commit(self.db, [RunWrite(fence, (_step("stale"),), end)]) == set()
            assert await claims.take_signal(self.db, fence, _step("stale"), name="go") == (False, None)
            new = triggers.NewRuns(self.workflow.workflow_id, self.workflow.queue_id, ["null"])
            assert await claims.spawn(self.db, fence, _step("stale"), new) is None
        assert await self.rows() == before


def _step(name):
    return StepRecord(name, 0, StepStatus.SUCCESS, output="1")


async def lead_to(walker, status):
    """To that status, after a worker was lost on the way, so that there is a stale token."""
    await walker.claim()
    walker.clock.advance(LEASE)
    await walker.claim()
    path = {
        S.PENDING: ["hand_back"],
        S.RUNNING: [],
        S.PAUSED: ["sleep"],
        S.SUCCESS: ["succeed"],
        S.ERROR: ["fail"],
        S.CANCELLED: ["cancel"],
    }
    for verb in path[status]:
        await walker.do(verb)
    assert await walker.status() is status


def test_the_table_at_the_head_of_the_module_is_the_one_walked_here():
    listed = set()
    for line in transitions.__doc__.splitlines():
        found = re.match(r"    (\(none\)|[A-Z]+) +([A-Z]+) +(.*)", line)
        if found and found[1] != "(none)":
            sources = {found[1], *re.findall(r"\b[A-Z]{5,}\b", found[3])}
            listed |= {(source, found[2]) for source in sources if source in set(S)}

    assert listed == {(str(a), str(b)) for moves in MOVES.values() for a, b in moves.items()} | {
        ("RUNNING", "RUNNING")
    }


@pytest.mark.parametrize("verb", [verb for verb in MOVES if verb != "end_lost"])
async def test_from_every_status_only_the_listed_moves_happen(store, clock, verb):
    for status in S:
        walker = await Walker(store, clock).begin()
        await lead_to(walker, status)
        clock.advance(0 if walker.held and verb in ENDS else 3600)
        before = await walker.rows()

        refused = False
        try:
            await walker.do(verb)
        except pgqrs.InvalidTransition:
            refused = True
        after = await walker.rows()

        assert await walker.status() is MOVES[verb].get(status, status), status
        assert refused == (
            (status in ENDED and verb in REFUSED_WHEN_ENDED)
            or (verb == "cancel" and status in (S.SUCCESS, S.ERROR))
            or (verb == "restart" and status in (S.PENDING, S.PAUSED, S.SUCCESS))
        ), status
        if refused or (status in ENDED and verb not in REWRITES):
            assert after == before, status
        await walker.assert_stale_tokens_change_nothing()


async def test_only_a_run_that_lost_its_workers_too_often_is_ended_for_it(store, clock):
    for status in S:
        walker = await Walker(store, clock).begin(max_attempts=2)
        await lead_to(walker, status)
        clock.advance(3600)

        await walker.do("end_lost")

        assert await walker.status() is (S.ERROR if status is S.RUNNING else status)
        await walker.assert_stale_tokens_change_nothing()


@pytest.mark.row("B8.3")
async def test_random_walks_leave_ended_runs_alone_and_let_no_stale_token_write(store, clock):
    dice = random.Random(SEED)
    for walk in range(200 if os.environ.get("PGQRS_SOAK") else 12):
        walker = await Walker(store, clock).begin()
        path = []
        for _ in range(12):
            verb = dice.choice([*MOVES, "claim", "claim"])
            clock.advance(dice.choice([0, 0, LEASE, 3600]))
            before, was = await walker.rows(), await walker.status()
            path.append(f"{was}.{verb}")
            told = f"seed {SEED}, walk {walk}: {' '.join(path)}"
            try:
                await walker.do(verb)
            except pgqrs.InvalidTransition:
                assert await walker.rows() == before, told
            now = await walker.status()
            assert now in (was, MOVES[verb].get(was, was)), told
            if was in ENDED and verb not in REWRITES:
                assert await walker.rows() == before, told
            try:
                await walker.assert_stale_tokens_change_nothing()
            except AssertionError as error:
                raise AssertionError(told) from error
