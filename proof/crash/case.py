"""One case: a database, a chain of processes, each but the last of them struck once; then the check.

    sqlite/steps/kill@before settlement.commit#2             one fault, then recovery
    postgres/signals/stall@after claims.claim#1/kill@#7    a second one during the recovery from the first

The process that makes the forks has no event loop, no thread and no connection when it does.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pgqrs
from pgqrs import faults
from proof.crash import check
from proof.crash.clock import SharedClock
from proof.crash.faults import Fault, Striker
from proof.crash.ledger import Ledger
from proof.crash.preload import preload
from proof.crash.scenarios import SCENARIOS, Scenario, rows
from proof.crash.world import LEASE_SECONDS, Over, World
from rig.emptying import emptied
from rig.guards import install_guards
from rig.invariants import check_invariants_of

# A process that takes longer hangs. Generous: the machine may be busy with other things.
DEADLINE_SECONDS = 90
FINISHED, GAVE_UP, WRONG = 0, 3, 4


@dataclass(frozen=True, slots=True)
class Case:
    backend: str
    scenario: str
    faults: tuple[Fault, ...] = ()

    @classmethod
    def of(cls, text: str) -> Case:
        backend, scenario, *given = text.split("/")
        return cls(backend, scenario, tuple(Fault.of(each) for each in given))

    def __str__(self) -> str:
        return "/".join([self.backend, self.scenario, *map(str, self.faults)])


@dataclass(slots=True)
class Result:
    case: str
    # How many of its faults were reached; a case whose faults were not all reached proves nothing and is not counted.
    struck: int = 0
    wrong: list[str] = field(default_factory=list)
    # How often each effect happened.
    effects: dict[str, int] = field(default_factory=dict)
    # What the handler saw.
    saw: dict[str, Any] = field(default_factory=dict)
    # Of the first process: which points it reached. Of the last: how many of them lay between two store calls.
    points: list[tuple[str, str, int]] = field(default_factory=list)
    between: int = 0
    seconds: float = 0.0


class Bench:
    """Where one forking process keeps its databases."""

    def __init__(self, folder: Path, postgres: str) -> None:
        self.folder = folder
        # asyncpg makes a TLS context for each connection otherwise, in 4 ms, for a server that has no TLS.
        self._postgres = f"{postgres}?sslmode=disable" if postgres and "?" not in postgres else postgres
        self._made: set[str] = set()
        self._warm: set[tuple[str, str]] = set()
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)
        logging.disable(logging.CRITICAL)

    def run(self, case: Case, expected: Result | None = None) -> Result:
        """`expected` is the dry run; without it only what came of the case is checked."""
        if case.backend not in self._made:
            self._made.add(case.backend)
            preload(case.backend)
        if case.faults and (case.backend, case.scenario) not in self._warm:
            self.run(Case(case.backend, case.scenario))
        began = time.monotonic()
        self._count += 1
        ledger = Ledger(self.folder / f"{self._count}.ledger")
        clock = SharedClock()
        result = Result(str(case))
        try:
            chain = _Chain(case, self._fresh(case), clock, ledger, result, expected)
            if case.faults or SCENARIOS[case.scenario].threads:
                chain.run()
            else:
                # Here: what is compiled and imported on the way, forked processes have then. They need a third of the
                # time.
                chain.run_here()
                gc.freeze()
            self._warm.add((case.backend, case.scenario))
        finally:
            ledger.close()
            clock.close()
            if not result.wrong:
                ledger.path.unlink()
        result.seconds = time.monotonic() - began
        return result

    def _fresh(self, case: Case) -> pgqrs.Config:
        """A copy of the scenario's database; on PostgreSQL its schema, which the first process empties."""
        kind = SCENARIOS[case.scenario]
        settings: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "max_attempts": 20, **kind.settings}
        name = f"{case.backend}_{case.scenario.replace('.', '_')}"
        if case.backend == "postgres":
            config = pgqrs.Config(self._postgres, schema=f"c{os.getpid()}", pool_size=4, **settings)
            if config.schema not in self._made:
                self._made.add(config.schema)
                _forked(lambda: _install(config))
            return config
        template = self.folder / f"{name}.template"
        if name not in self._made:
            self._made.add(name)
            made = pgqrs.Config(f"{case.backend}:///{template}", **settings)
            _forked(lambda: _prepare(made, kind()))
        for suffix in ("-wal", "-shm"):
            (self.folder / f"{name}.db{suffix}").unlink(missing_ok=True)
        shutil.copyfile(template, self.folder / f"{name}.db")
        return pgqrs.Config(f"{case.backend}:///{self.folder / f'{name}.db'}", **settings)


class _Chain:
    def __init__(
        self,
        case: Case,
        config: pgqrs.Config,
        clock: SharedClock,
        ledger: Ledger,
        result: Result,
        expected: Result | None,
    ) -> None:
        self._case = case
        self._config = config
        self._clock = clock
        self._ledger = ledger
        self._result = result
        self._expected = expected
        self._kind = SCENARIOS[case.scenario]

    def run_here(self) -> None:
        if asyncio.run(self._live(0, None)) != FINISHED:
            self._result.wrong.append("did not finish")
        self._conclude()

    def run(self) -> None:
        stalled: list[int] = []
        given = self._case.faults
        for number, fault in enumerate(given if given and given[-1].recovers else (*given, None)):
            if number:
                self._clock.advance(LEASE_SECONDS + 1)
            pid = _fork(lambda number=number, fault=fault: self._live(number, fault))
            if _wait(pid, fault, self._result):
                stalled.append(pid)
        if given and given[-1].recovers and stalled:
            last = stalled.pop()
            self._wake(stalled)
            os.kill(last, signal.SIGCONT)
            _wait(last, None, self._result)
        else:
            self._wake(stalled)
        if stalled and self._was_giving():
            # A client's command, which needs no lease, was carried out late: somebody sees to what came of it.
            _wait(_fork(lambda: self._live(len(self._case.faults), None)), None, self._result)
        elif stalled:
            _wait(_fork(self._look_again), None, self._result)
        self._conclude()

    def _wake(self, stalled: list[int]) -> None:
        for pid in stalled:
            self._ledger.write("woken", who=pid)
            self._clock.awake()
            os.kill(pid, signal.SIGCONT)
            _wait(pid, Fault("", 0), self._result)

    def _was_giving(self) -> bool:
        struck = [line for line in self._ledger.lines("fault") if Fault.of(line["fault"]).mode in STOPPED]
        return any(line["giving"] for line in struck)

    def _conclude(self) -> None:
        lines = self._ledger.lines()
        self._result.struck = sum(line["kind"] == "fault" for line in lines)
        self._result.wrong += [line["what"] for line in lines if line["kind"] == "wrong"]
        self._result.effects = check.effects_of(lines)
        self._result.saw = check.observations_of(lines)
        for line in lines:
            if line["kind"] == "points":
                self._result.points = self._result.points or [tuple(each) for each in line["points"]]
                self._result.between = line["between"]
        if not self._case.faults:
            self._result.wrong += check.wrong_in_peace(lines, self._kind)
        elif self._expected is not None:
            self._result.wrong += check.wrong_effects(lines, self._expected.effects, self._kind)
        expected = self._result if self._expected is None else self._expected
        self._result.wrong += check.wrong_observations(lines, expected.saw)

    # -- in the children ---------------------------------------------------------------------------------

    async def _live(self, number: int, fault: Fault | None) -> int:
        """The program, from the top."""
        if fault is not None and fault.mode == "freeze":
            self._clock.follow()
        scenario = self._kind()
        store = await pgqrs.connect_with(self._config, clock=self._clock)
        if number == 0 and self._config.backend == "postgres":
            await rows(store, emptied(self._config.schema))
            await scenario.prepare(store)
        world = scenario.world = World(store, self._clock, self._ledger, scenario.handlers)
        striker = Striker(fault, world)
        code = FINISHED
        try:
            with faults.injected(striker):
                code = await self._program(scenario, striker, world)
        finally:
            with world.unseen():
                await store.close()
        if fault is None or fault.recovers:
            self._ledger.write("points", points=_told(striker) if number == 0 else [], between=striker.between)
        return code

    async def _program(self, scenario: Scenario, striker: Striker, world: World) -> int:
        is_last = striker.fault is None or striker.fault.recovers
        code = FINISHED
        striker.program = asyncio.ensure_future(scenario.program())
        try:
            await striker.program
        except Over:
            pass
        except (pgqrs.PgqrsError, asyncio.CancelledError) as error:
            # Whoever was struck may give up, with an error that people can understand; who recovers may not.
            code = WRONG if is_last or not striker.struck else GAVE_UP
            if code is WRONG:
                self._ledger.write("wrong", what=f"gave up without a fault: {_shown(error)}")
        finally:
            await world.close()
        if is_last:
            with world.unseen():
                await self._judge(scenario)
        elif code == GAVE_UP and striker.fault.mode == "cancel":
            with world.unseen():
                await self._handed_back(world)
        return code

    async def _judge(self, scenario: Scenario) -> None:
        await self._say(scenario.check())
        await self._say(check_invariants_of(scenario.world.store.database))
        if any(fault.mode in STOPPED for fault in self._case.faults):
            # For `_look_again`: nobody else asks for it.
            self._ledger.write("state", tables=await check.state_of(scenario.world.store))

    async def _handed_back(self, world: World) -> None:
        """A cancelled worker that was closed holds nothing: nobody has to wait for its leases."""
        # Of this process: one that was killed before it holds what it held until its leases have run out.
        ours = [each for each in await pgqrs.admin(world.store).workers() if each.info.get("pid") == os.getpid()]
        if held := sum(each.leased for each in ours):
            self._ledger.write("wrong", what=f"still holds {held} messages after it was cancelled and closed")

    async def _look_again(self) -> int:
        """After the stalled ones went on: they have changed nothing, and all is as it was."""
        scenario = self._kind()
        store = await pgqrs.connect_with(self._config, clock=self._clock)
        scenario.world = World(store, self._clock, self._ledger, scenario.handlers)
        try:
            before = self._ledger.lines("state")[-1]["tables"]
            await self._judge(scenario)
            after = self._ledger.lines("state")[-1]["tables"]
            if before != after:
                changed = [name for name in before if before[name] != after[name]]
                self._ledger.write("wrong", what=f"a stalled process changed {', '.join(changed)} when it went on")
        finally:
            await store.close()
        return FINISHED

    async def _say(self, judging: Coroutine[Any, Any, None]) -> None:
        try:
            await judging
        except (AssertionError, pgqrs.PgqrsError) as error:
            self._ledger.write("wrong", what=str(error) or _shown(error))


STOPPED = ("stall", "freeze")
# Threads of a store and of a worker; those that plain code runs in are kept for the next.
_OURS = ("pgqrs-writer", "pgqrs-reader", "pgqrs-heartbeat")


def _told(striker: Striker) -> list[tuple[str, str, int]]:
    return [(point.phase, point.name, nth) for point, nth in striker.points]


# -- processes -------------------------------------------------------------------------------------------------


def _fork(live: Callable[[], Coroutine[Any, Any, int]]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = WRONG
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(DEADLINE_SECONDS)
        code = asyncio.run(live())
        if left := [each.name for each in threading.enumerate() if each.name in _OURS]:
            print(f"threads are left: {left}", flush=True)
            code = WRONG
    except BaseException:  # noqa: BLE001 - nothing of the child may go on in the parent's code
        traceback.print_exc()
    finally:
        os._exit(code)


def _wait(pid: int, fault: Fault | None, result: Result) -> bool:
    """Until it has ended, as it may; True when it has stopped."""
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return True
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    allowed = (FINISHED,) if fault is None else (FINISHED, GAVE_UP)
    if how == f"signal {signal.SIGKILL.value}" and fault is not None and fault.mode == "kill":
        return False
    if how == f"signal {signal.SIGALRM.value}":
        result.wrong.append(f"hung for {DEADLINE_SECONDS} s")
    elif how not in allowed:
        result.wrong.append(f"a process ended with {how}")
    return False


def _forked(live: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> int:
        await live()
        return FINISHED

    _, status = os.waitpid(_fork(all_of_it), 0)
    if status:
        raise RuntimeError("the database could not be made")


async def _install(config: pgqrs.Config) -> None:
    async with pgqrs.connect_with(config, install=True) as store:
        await install_guards(store)


async def _prepare(config: pgqrs.Config, scenario: Scenario) -> None:
    async with pgqrs.connect_with(config) as store:
        await install_guards(store)
        await scenario.prepare(store)


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
