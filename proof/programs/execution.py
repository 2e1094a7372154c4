"""One execution: rounds of working what is due, playing the world outside, and letting time pass."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import pgqrs
from pgqrs.types import ENDED, RunStatus
from proof.programs.faults import Fate, jump, within
from proof.programs.grammar import ANSWER, Child, First, Map, Pause, Program, Wait, parts
from proof.programs.handlers import Case, own_context, paused_name, workflow_of
from proof.programs.results import Result, Row

if TYPE_CHECKING:
    from proof.programs.world import World

LEASE_SECONDS = 30.0
# Generous: other things happen on this machine.
_HANGS_SECONDS = 15.0
_ROUNDS = 120
_BEAT_SECONDS = 0.1
_TURNS = 200


class Execution:
    """The rounds of one execution: work what is due, play the world outside, let time pass."""

    def __init__(self, world: World, case: Case, result: Result) -> None:
        self._world = world
        self._store = world.store
        self._case = case
        self._result = result
        self._fault = result.fault
        self._fate = Fate(self._fault)
        self._fate.on_cancel = self._cancel
        self._fate.on_answer = self._answer_meanwhile
        self._victim: pgqrs.Worker | None = None
        self._stalled: asyncio.Task[None] | None = None
        self._outside = copy_context()
        self._sent: set[tuple[str, str]] = set()
        self._restarted = False
        self._run_id = 0
        self._attempts = 0
        self._progress: Counter[str] = Counter()
        self._fates = [self._fate]
        self._in_vain = 0
        self._cancelling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        case = self._case
        self._victim = await self._world.hire_victim()
        self._attempts = case.program.attempts + (1 if self._fault.costs_an_attempt else 0)
        trigger = self._noun.trigger(case.given(""), max_attempts=self._attempts)
        self._run_id = await trigger.execute(self._store)
        await self._send_early()
        try:
            await within(_HANGS_SECONDS, self._rounds())
        except TimeoutError:
            rows = await self._world.rows()
            states = ", ".join(f"{label or 'the run'} {row.status}" for label, row in rows.items())
            self._result.wrong.append(f"hangs: {states}")
        finally:
            self._result.points = self._fate.points
            self._result.struck = self._fate.struck.is_set()
            self._result.struck_at = self._fate.struck_at

    @property
    def _noun(self) -> Any:
        return pgqrs.workflow(workflow_of(self._case.program))

    async def _rounds(self) -> None:
        for _ in range(_ROUNDS):
            await self._work()
            rows = await self._world.rows()
            self._look_at_progress(rows)
            if any(row.waiting_for.startswith("parked") for row in rows.values()):
                self._result.wrong += [f"parked: {r.waiting_for}" for r in rows.values() if "parked" in r.waiting_for]
                break
            if all(row.status in ENDED for row in rows.values()):
                if await self._restart(rows):
                    continue
                break
            if await self._play(rows):
                continue
            seconds = await self._world.next_due()
            if seconds is None:
                # A run whose worker was lost in its last attempt is ended when that lease is over.
                self._in_vain += 1
                if self._in_vain > 2:
                    self._result.wrong.append("stuck: nothing is due, and not all runs have ended")
                    break
                seconds = LEASE_SECONDS + 1
            # A hair more: times are kept in microseconds.
            self._world.clock.advance(max(seconds, 0) + 0.001)
        else:
            states = ", ".join(f"{label or 'the run'} {row.status} {row.waiting_for}" for label, row in rows.items())
            self._result.wrong.append(f"stuck: no end after {_ROUNDS} rounds: {states}")
        await self._wake()
        if self._cancelling is not None:
            await self._cancelling

    # -- who works ---------------------------------------------------------------------------------------

    async def _work(self) -> None:
        if self._fate.struck.is_set() and self._fault.mode in ("kill", "stall", "freeze", "overlap"):
            await self._work_as_another()
            return
        assert self._victim is not None
        task = asyncio.get_running_loop().create_task(self._victim.run_until_idle(), context=own_context(self._fate))
        striking = asyncio.ensure_future(self._fate.struck.wait())
        dies = self._fault.mode in ("kill", "stall", "freeze", "overlap")
        try:
            await asyncio.wait([task, *([striking] if dies else [])], return_when=asyncio.FIRST_COMPLETED)
        finally:
            striking.cancel()
        if not task.done():
            # It stands still, or is dead.
            run = (await self._world.rows())[""]
            self._result.struck_last = run.status == RunStatus.RUNNING and run.attempt >= self._attempts
            if self._fault.mode == "kill":
                self._victim._loop._heartbeat.stop()
            else:
                self._stalled = task
            return
        # The database was away: a worker that polls would ask again. Anything else is not to leave it.
        with suppress(pgqrs.ConnectionFailed):
            task.result()

    async def _work_as_another(self) -> None:
        assert self._world._rescuer is not None
        fate = Fate()
        self._fates.append(fate)
        overlaps = self._fault.mode == "overlap" and self._stalled is not None
        if overlaps:
            fate.on_claim = self._fate.wake
        work = self._world._rescuer.run_until_idle()
        await asyncio.get_running_loop().create_task(work, context=own_context(fate))
        if overlaps and not self._fate.is_stalled:
            # No time passes while it is at work: it would lose leases that it keeps.
            await self._until_idle()

    async def _wake(self) -> None:
        """Who was stalled goes on, and may change nothing."""
        if self._stalled is None:
            return
        before = await self._world.picture()
        if self._fault.mode == "freeze":
            jump(2 * LEASE_SECONDS)
        self._fate.wake()
        await self._until_idle()
        if before != await self._world.picture():
            self._result.wrong.append("stale: a worker that had lost its lease has changed something")

    async def _until_idle(self) -> None:
        """Waits for the one that was stalled. Its heartbeat asks sooner than after a third of a lease."""
        assert self._stalled is not None
        assert self._victim is not None
        heartbeat: Any = self._victim._loop._heartbeat
        while not self._stalled.done():
            await asyncio.wait([self._stalled], timeout=_BEAT_SECONDS)
            heartbeat.heard(frozenset(-run_id for run_id in list(heartbeat._by_run)))
        with suppress(pgqrs.ConnectionFailed):
            self._stalled.result()
        self._stalled = None

    # -- the world outside -------------------------------------------------------------------------------

    async def _cancel(self) -> None:
        async def cancel() -> None:
            with suppress(pgqrs.InvalidTransition):
                await self._noun.cancel(self._run_id, self._store, reason="from outside")
                self._result.cancelled = True

        # In a context of our own: in the handler's it would be one of its branches.
        self._cancelling = asyncio.get_running_loop().create_task(cancel(), context=self._outside)
        # Who is cancelled by it may be the very task that waits here.
        await asyncio.shield(self._cancelling)

    async def _answer_meanwhile(self) -> None:
        async def answer() -> None:
            await self._answer(await self._world.rows())

        await asyncio.shield(asyncio.get_running_loop().create_task(answer(), context=self._outside))

    async def _answer(self, rows: dict[str, Row]) -> bool:
        """Resumes what waits for a person, twice: the second answer is refused."""
        labels = {row.run_id: label for label, row in rows.items()}
        did = False
        for run_id, step_id in await self._world.paused_steps():
            label, name = labels[run_id], re.split("[@#]", step_id)[0]
            row, program = rows[label], self._case.programs[label]
            given = {paused_name(node.name): node for node in parts(program) if isinstance(node, Pause)}
            node = given.get(name.partition("[")[0])
            if (node is None and name != "pause") or row.status in ENDED or label in self._case.doomed:
                continue
            noun = pgqrs.workflow(row.workflow)
            if node is not None and node.how == "again":
                # Of a branch that was cancelled, it stays paused for good.
                if name in row.waiting_for:
                    self._case.resumed.add((label, name.removeprefix(paused_name(""))))
                    await noun.resume(run_id, self._store)
                    did = True
                continue
            did = True
            data = ANSWER if node is None else node.given
            await noun.resume(run_id, self._store, step=step_id, data=data)
            with suppress(pgqrs.InvalidTransition):
                await noun.resume(run_id, self._store, step=step_id, data="once more")
                self._result.wrong.append(f"answered: {step_id} took a second answer")
        return did

    async def _send_early(self) -> None:
        for node in waits_of(self._case.program):
            if node.sent == "before":
                for name in (node.name, *(f"{node.name}.{i}" for i in range(3))):
                    await self._signal(self._run_id, workflow_of(self._case.program), "", name, node.value)

    async def _signal(self, run_id: int, workflow: str, label: str, name: str, value: Any) -> None:
        self._sent.add((label, name))
        await pgqrs.workflow(workflow).signal(run_id, self._store, name, value)

    async def _play(self, rows: dict[str, Row]) -> bool:
        """Sends what is waited for, and cancels who is to be cancelled; True when there was something to do."""
        did = await self._answer(rows)
        for label, row in rows.items():
            if row.status != RunStatus.PAUSED:
                continue
            if label in self._case.doomed:
                await pgqrs.workflow(row.workflow).cancel(row.run_id, self._store)
                did = True
                continue
            waited = set(re.findall(r"[\w.]+", row.waiting_for))
            for node in waits_of(self._case.programs[label]):
                for name in waited:
                    mine = re.fullmatch(rf"{node.name}(\.\d+)*", name)
                    if mine and node.sent != "never" and self._is_unsent(label, name):
                        await self._signal(row.run_id, row.workflow, label, name, node.value)
                        did = True
        return did

    def _is_unsent(self, label: str, name: str) -> bool:
        """Of a racy program, another attempt may wait for it in another branch: the one before has taken it."""
        is_again = self._case.is_racy and any(one.end == "raised" for one in self._case.passes[label])
        return is_again or (label, name) not in self._sent

    async def _restart(self, rows: dict[str, Row]) -> bool:
        if self._restarted or self._fault.mode != "restart" or rows[""].status != RunStatus.ERROR:
            return False
        self._restarted = self._result.struck = self._case.healed = True
        self._fate.struck.set()
        # Tokens are times, and passes are put in order by them: no restart comes in the microsecond of a lease.
        self._world.clock.advance(0.001)
        await self._noun.restart(self._run_id, self._store)
        return True

    def _look_at_progress(self, rows: dict[str, Row]) -> None:
        for label, row in rows.items():
            self._progress[label] = max(self._progress[label], row.progress)

    # -- afterwards --------------------------------------------------------------------------------------

    async def clear_away(self) -> None:
        """Ends what is left of the worker. One that came through signs off."""
        assert self._victim is not None
        fine = not self._fate.is_dead and not self._result.wrong and self._stalled is None
        if fine:
            await self._victim.close()
            return
        for fate in self._fates:
            fate.is_dead = True
        self._victim._loop._heartbeat.stop()
        for _ in range(_TURNS):
            left = [task for fate in self._fates for task in list(fate.tasks) if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            await asyncio.sleep(0)
        watchers = self._store.database.hints.watchers
        for heard in [each for each in watchers if each == self._victim._loop._heartbeat.heard]:
            watchers.remove(heard)


def waits_of(program: Program) -> list[Wait]:
    """What it waits for, without its children; a race that a signal wins is such a wait, too."""
    inner = {
        id(part)
        for node in parts(program)
        if isinstance(node, Child | Map)
        for child in ([node.program] if isinstance(node, Child) else node.programs)
        for part in parts(child)
    }
    own = [node for node in parts(program) if id(node) not in inner]
    races = [node for node in own if isinstance(node, First) and node.how == "signal"]
    return [
        *(node for node in own if isinstance(node, Wait)),
        *(Wait(node.name, "late", value=node.value) for node in races),
    ]
