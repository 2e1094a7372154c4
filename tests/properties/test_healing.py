"""Random families of failed runs: a restart, and a retry of children, change exactly the rows that they may."""

import os
import random
import re

import pytest

import pgqrs
from pgqrs.db.queries import Query
from pgqrs.db.runs import settlement, transitions
from pgqrs.db.runs.records import RunWrite
from pgqrs.serialization import decode
from pgqrs.types import StepStatus
from rig.failures import LEASE_SECONDS, Failures, result, step

# Steps are recorded as the dice say; a parent may end while it waits.
pytestmark = [pytest.mark.breaks("I4"), pytest.mark.backends("sqlite", "postgres")]

SEED = int(os.environ.get("PGQRS_SEED", "0")) or random.randrange(2**32)
FAMILIES = 500 if os.environ.get("PGQRS_SOAK") else 60
PLAIN = ("charge", "wait_for:go", "sleep", "sleep#2", "result:none", "spawning", "résumé", "a b@1", "a b@1#2")
LIVE = ("PENDING", "RUNNING", "PAUSED")


class Family:
    """A run with children and grandchildren, ended as the dice say."""

    def __init__(self, failures, flow, dice):
        self.failures, self.flow, self.dice = failures, flow, dice
        self.db, self.store = failures.db, failures.store

    async def begin(self):
        claim = await self.failures.running()
        end = await self.live(claim, depth=2)
        await self.finish(claim, end, top=True)
        return claim.run_id

    async def live(self, claim, *, depth):
        """Children, and what the run records of itself and of them."""
        dice, records = self.dice, []
        for group in range(dice.randint(depth - 1, 2) if depth else 0):
            step_id = "spawn" if group == 0 else f"spawn#{group + 1}"
            for child in await self.failures.spawn(claim, dice.randint(1, 3), step_id=step_id):
                await self.child(child, depth - 1)
                records += self.of_child(child)
        for name in dice.sample(PLAIN, dice.randint(0, 5)):
            status = dice.choice(
                [StepStatus.SUCCESS, StepStatus.ERROR, StepStatus.ERROR, StepStatus.PENDING, StepStatus.PAUSED]
            )
            output = (
                None if status in (StepStatus.ERROR, StepStatus.PENDING) else dice.choice([1, ["ERROR", "mine"], "t"])
            )
            records.append(step(name, status, output=output))
        return records

    def of_child(self, child):
        name = dice_name(self.dice, child)
        kind = self.dice.choice(["none", "error", "error", "error", "value", "value", "waits", "fine"])
        match kind:
            case "none":
                return []
            case "error":
                return [result(child)._replace(step_id=name)]
            case "value":
                old = result(child, self.dice.choice(["ERROR", "CANCELLED"]), old=True)
                return [old._replace(step_id=name)]
            case "waits":
                return [step(name, self.dice.choice([StepStatus.PAUSED, StepStatus.PENDING]))]
            case _:
                return [step(name, StepStatus.SUCCESS, output=self.dice.choice([["SUCCESS", 1], "fine"]))]

    async def child(self, run_id, depth):
        match self.dice.choice(["fails", "fails", "fails", "cancelled", "succeeds", "waits"]):
            case "fails":
                claim = await self.failures.claim(run_id)
                await self.finish(claim, await self.live(claim, depth=depth))
            case "cancelled":
                claim = await self.failures.claim(run_id)
                await settlement.commit(self.db, [RunWrite(claim.fence, tuple(await self.live(claim, depth=depth)))])
                await self.flow.cancel(run_id, self.store)
            case "succeeds":
                await self.failures.succeed(run_id)

    async def finish(self, claim, records, *, top=False):
        names = [each.step_id for each in records]
        if top and self.dice.random() < 0.2:
            await settlement.commit(self.db, [RunWrite(claim.fence, tuple(records))] if records else [])
            if self.dice.random() < 0.5:
                await self.flow.cancel(claim.run_id, self.store)
            return
        culprits = self.dice.choice(
            [None, [], names, self.dice.sample(names, self.dice.randint(0, len(names))), [*names, "unknown", "spawn"]]
        )
        last_error = self.dice.choice(["ValueError: no"] * 8 + ["worker_lost", "no_handler_registered"])
        await self.failures.end(claim, *records, culprits=culprits, last_error=last_error)

    async def change(self, run_ids):
        """What becomes of some of them before anybody restarts the first."""
        for run_id in run_ids:
            try:
                match self.dice.choice(["nothing"] * 6 + ["restart", "restart", "succeed", "delete"]):
                    case "restart":
                        await self.flow.restart(run_id, self.store)
                    case "succeed":
                        await self.flow.restart(run_id, self.store)
                        await self.failures.succeed(run_id)
                    case "delete":
                        await self.flow.delete(run_id, self.store)
            except pgqrs.InvalidTransition:
                continue


def dice_name(dice, child):
    return f"result:{child}" + dice.choice(["", "", "", "@1", "#2"])


async def snapshot(db, since):
    """Every run of the family, whose first is `since`, and every step, as the rows are."""
    run_rows = await db.fetch(
        Query(
            "runs",
            "select run_id, parent_run_id, status, deleted_at, cast(error as text), last_error from pgqrs_workflow_runs"
            f" where run_id >= {since}",
        )
    )
    step_rows = await db.fetch(
        Query(
            "steps",
            "select run_id, step_id, status, cast(output as text), attempts from pgqrs_workflow_steps"
            f" where run_id >= {since}",
        )
    )
    return {row[0]: tuple(row[1:]) for row in run_rows}, {(row[0], row[1]): tuple(row[2:]) for row in step_rows}


# -- the rules, said once more, row by row ---------------------------------------------------------------


class Rules:
    def __init__(self, runs, steps):
        self.runs, self.steps = runs, steps

    def child(self, run_id, step_id):
        """The child of this run whose result the step is."""
        found = re.fullmatch(r"result:(\d+)([@#].*)?", step_id)
        child = int(found[1]) if found else None
        return child if child in self.runs and self.runs[child][0] == run_id else None

    def is_failure_of_child(self, run_id, step_id):
        status, output, _ = self.steps[run_id, step_id]
        told = status == "ERROR" or (status == "SUCCESS" and re.match(r'\["(ERROR|CANCELLED)"', output or ""))
        return self.child(run_id, step_id) is not None and bool(told)

    def has_recovered(self, child):
        _, status, deleted_at, *_ = self.runs[child]
        return deleted_at is None and status in (*LIVE, "SUCCESS")

    def named(self, run_id):
        _, _, _, error, last_error = self.runs[run_id]
        if last_error in ("worker_lost", "no_handler_registered"):
            return []
        return decode(error).get("steps")

    def mine(self, run_id):
        return [step_id for run, step_id in self.steps if run == run_id]

    def is_blamed(self, run_id, step_id):
        """Its own error left the handler."""
        named = self.named(run_id)
        failed = self.steps[run_id, step_id][0] in ("ERROR", "PENDING")
        child_failed = self.is_failure_of_child(run_id, step_id)
        if named is None:
            return failed and not child_failed
        return step_id in named and (failed or child_failed)

    def is_beside_blamed(self, run_id, step_id):
        """The failure of a child: of an older version's record, or of one spawned together with a blamed one."""
        if not self.is_failure_of_child(run_id, step_id) or self.is_blamed(run_id, step_id):
            return False
        if self.named(run_id) is None:
            return True
        child = self.child(run_id, step_id)
        guilty = self.guilty(run_id)
        together = [
            decode(self.steps[run_id, each][1])
            for each in self.mine(run_id)
            if re.fullmatch(r"spawn(#\d+)?", each) and self.steps[run_id, each][0] == "SUCCESS"
        ]
        return child not in guilty and any(child in each and guilty & set(each) for each in together)

    def guilty(self, run_id):
        if self.runs[run_id][1] != "ERROR":
            return set()
        old = self.named(run_id) is None
        return {
            self.child(run_id, each)
            for each in self.mine(run_id)
            if self.is_failure_of_child(run_id, each) and (old or self.is_blamed(run_id, each))
        }

    def restart(self, run_id):
        """The steps of the run that a restart deletes."""
        if self.runs[run_id][1] != "ERROR":
            return set()
        return {
            each
            for each in self.mine(run_id)
            if self.is_blamed(run_id, each)
            or (self.is_beside_blamed(run_id, each) and self.has_recovered(self.child(run_id, each)))
        }

    def retry(self, run_id):
        """By run that is restarted, the steps that it loses; None when all of it is refused."""
        found = self._retry(run_id) if self.runs[run_id][1] in ("ERROR", "CANCELLED") else None
        if found is None:
            return None
        about_children = len(found) > 1 or any(
            each.startswith("result:") for each in found[run_id] if each != "result:none"
        )
        return found if about_children else None

    def _retry(self, run_id):
        _, status, *_ = self.runs[run_id]
        mine = self.mine(run_id)
        guilty = self.guilty(run_id)
        if any(self.runs[child][2] is not None for child in guilty):
            return None
        failed = status == "ERROR"
        beside = {each for each in mine if failed and self.is_beside_blamed(run_id, each)}
        lost = {each for each in mine if failed and self.is_blamed(run_id, each)}
        lost |= {each for each in beside if self.runs[self.child(run_id, each)][2] is None}
        asked = guilty | {self.child(run_id, each) for each in beside}
        waits = any(
            self.steps[run_id, each][0] in ("PAUSED", "PENDING") and self.child(run_id, each) for each in mine
        )
        if not failed or guilty or waits:
            # It would fail because of these next.
            answered = {
                self.child(run_id, each) for each in mine if self.steps[run_id, each][0] in ("SUCCESS", "ERROR")
            }
            asked |= {
                child for child, (parent, *_) in self.runs.items() if parent == run_id and child not in answered
            }
        found = {run_id: lost}
        for child in asked:
            _, has, deleted_at, *_ = self.runs[child]
            if has in ("ERROR", "CANCELLED") and deleted_at is None:
                below = self._retry(child)
                if below is None:
                    return None
                found |= below
        return found


@pytest.mark.parametrize("verb", ["restart", "retry_children"])
async def test_random_restarts_touch_only_what_they_may(store, clock, verb):
    failures, dice = await Failures(store).begin(), random.Random(SEED)
    flow = pgqrs.workflow("flow")
    done = 0
    for number in range(FAMILIES):
        family = Family(failures, flow, dice)
        run_id = await family.begin()
        runs, _ = await snapshot(store.database, run_id)
        if runs[run_id][1] == "RUNNING":
            clock.advance(LEASE_SECONDS)
        await family.change(sorted(runs.keys() - {run_id}, reverse=True))
        runs, steps = await snapshot(store.database, run_id)
        rules = Rules(runs, steps)
        expected = {run_id: rules.restart(run_id)} if verb == "restart" else rules.retry(run_id)

        try:
            await getattr(transitions, verb)(store.database, run_id)
            refused = False
        except pgqrs.InvalidTransition:
            refused = True
        now_runs, now_steps = await snapshot(store.database, run_id)

        told = f"PGQRS_SEED={SEED}, family {number}, run {run_id}: {runs[run_id]}"
        assert refused == (expected is None), told
        plan = expected or {}
        gone = {(run, each) for run, lost in plan.items() for each in lost}
        assert {key: row for key, row in steps.items() if key not in gone} == now_steps, told
        assert {run for run in runs if now_runs[run] != runs[run]} == set(plan), told
        assert all(now_runs[run][1:4] == ("PENDING", None, None) for run in plan), told
        done += not refused
    assert done > FAMILIES / 20
