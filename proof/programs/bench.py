"""One process's place to execute programs: a database, an event loop, and faults for each program."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from operator import itemgetter
from typing import Any

import pgqrs
from pgqrs.faults import Point
from proof.programs import oracle
from proof.programs.agreement import disagreements
from proof.programs.answers import Answer, Racy
from proof.programs.faults import OUTAGES, PHASES, Fault, within
from proof.programs.generator import generate
from proof.programs.grammar import Pause, Program, parts
from proof.programs.judge import divergences
from proof.programs.races import generate_racy
from proof.programs.results import Result
from proof.programs.world import World

NONE = Fault("none")


@dataclass(slots=True)
class Divergence:
    seed: int
    number: int
    backend: str
    fault: str
    said: list[str]
    program: Program
    struck_at: str = ""
    is_racy: bool = False

    @property
    def case(self) -> str:
        """As CASE takes it: `17 kill@5`, or `r17 kill@5` for a racy program."""
        return f"{'r' if self.is_racy else ''}{self.number} {self.fault}"

    @property
    def kind(self) -> str:
        """What many of them have in common: the first word, and the mode of the fault."""
        return f"{self.said[0].partition(':')[0]} {Fault.of(self.fault).mode}"

    @property
    def signature(self) -> str:
        """With the classes of the errors that it tells of: divergences that have all this in common are one."""
        classes = sorted(set(re.findall(r"\w+\.[A-Z]\w+|(?<=error=['\"])\w+", " ".join(self.said))))
        return f"{self.kind} {' '.join(classes)}"


@dataclass(slots=True)
class Report:
    """What came of one program under its faults."""

    number: int
    executed: int = 0
    # Its boundary was not reached this time, so that it shows nothing.
    missed: int = 0
    by_mode: dict[str, int] = field(default_factory=dict)
    diverged: list[Divergence] = field(default_factory=list)
    seconds: float = 0.0


class Bench:
    def __init__(self, config: pgqrs.Config) -> None:
        self._config = config
        self._runner = asyncio.Runner()
        self._opened: Any = None
        self.world: World | None = None
        # What is being executed, and after how many seconds SIGALRM is to come; 0: never.
        self.fault = NONE
        self.deadline = 0
        # True when something has hung here.
        self.is_spoiled = False

    # -- one program -------------------------------------------------------------------------------------

    def run(self, seed: int, number: int, most: int, modes: Iterable[str] = (), *, is_racy: bool = False) -> Report:
        """The program without a fault, then under as many faults as are asked for, by chance."""
        began = time.monotonic()
        report = Report(number)
        program, answer = generated(seed, number, is_racy=is_racy)
        dry = self.judged(program, NONE, answer)
        self._count(report, seed, program, NONE, *dry)
        if dry[1]:
            # What goes wrong by itself says nothing about faults.
            report.seconds = time.monotonic() - began
            return report
        # The oracle is asked once for all faults of a kind: it executes the program a dozen times.
        expected: dict[str, Answer | None] = {}
        for fault in self._chosen(seed, number, dry[0], answer, most, tuple(modes)):
            if self.is_spoiled:
                break
            kind = "restart" if fault.mode == "restart" else "others"
            if answer is None:
                self._count(report, seed, program, fault, *self.judged(program, fault, None))
                continue
            if kind not in expected:
                expected[kind] = None
                with suppress(Racy):
                    expected[kind] = expected_under(program, answer, fault)
            if (right := expected[kind]) is not None:
                self._count(report, seed, program, fault, *self.judged(program, fault, right))
        report.seconds = time.monotonic() - began
        return report

    def run_one(self, seed: int, number: int, fault: Fault, *, is_racy: bool = False) -> Report:
        """The program under that fault alone."""
        report = Report(number)
        program, answer = generated(seed, number, is_racy=is_racy)
        expected = expected_under(program, answer, fault)
        self._count(report, seed, program, fault, *self.judged(program, fault, expected))
        return report

    def _chosen(
        self, seed: int, number: int, dry: Result, answer: Answer | None, most: int, modes: tuple[str, ...]
    ) -> list[Fault]:
        every = faults_for(dry, answer, modes)
        if len(every) <= most:
            return every
        random.Random(f"{seed} {number} faults").shuffle(every)
        return spread(every, dry.points)[:most]

    def _count(
        self, report: Report, seed: int, program: Program, fault: Fault, result: Result, said: list[str]
    ) -> None:
        if fault.mode != "none" and not result.struck and not said:
            report.missed += 1
            return
        report.executed += 1
        report.by_mode[fault.mode] = report.by_mode.get(fault.mode, 0) + 1
        if said:
            backend, at = self._config.backend, result.struck_at
            is_racy = result.case.is_racy
            report.diverged.append(Divergence(seed, report.number, backend, str(fault), said, program, at, is_racy))

    def judged(self, program: Program, fault: Fault, answer: Answer | None) -> tuple[Result, list[str]]:
        """One execution, and what is wrong with it. Without an answer the program is a race."""
        self.fault = fault
        signal.alarm(self.deadline)
        try:
            result = self._runner.run(self._execute(program, fault, is_racy=answer is None))
        finally:
            signal.alarm(0)
        if any(each.startswith("hangs") for each in result.wrong):
            # Whatever hangs there must not disturb the next one.
            self.is_spoiled = True
            self.close()
        return result, disagreements(result) if answer is None else divergences(result, answer)

    async def _execute(self, program: Program, fault: Fault, *, is_racy: bool) -> Result:
        if self.world is None:
            self._opened = World.opened(self._config)
            self.world = await self._opened.__aenter__()
        return await self.world.execute(program, fault, is_racy=is_racy)

    # -- as many as there are ----------------------------------------------------------------------------

    def close(self) -> None:
        opened, self._opened, self.world = self._opened, None, None
        if opened is not None:
            with suppress(Exception, asyncio.CancelledError):
                self._runner.run(within(5.0, opened.__aexit__(None, None, None)))
        with suppress(Exception, asyncio.CancelledError):
            self._runner.close()
        self._runner = asyncio.Runner()


def read_case(case: str) -> tuple[bool, int, str]:
    """Say of `r17 kill@5` whether the program is racy, its number, and its fault, which may be empty."""
    number, _, fault = case.partition(" ")
    return number.startswith("r"), int(number.removeprefix("r")), fault


def generated(seed: int, number: int, *, is_racy: bool) -> tuple[Program, Answer | None]:
    """The program, and what must come of it: None when that goes by the order of results."""
    return (generate_racy(seed, number), None) if is_racy else generate(seed, number)


def faults_for(dry: Result, answer: Answer | None, modes: tuple[str, ...] = ()) -> list[Fault]:
    """Every fault that means something for a program, from what a run without any has passed."""
    points = Counter(point.phase for point in dry.points)
    found: list[Fault] = []
    asks = any(getattr(part, "how", "") == "pause" or isinstance(part, Pause) for part in parts(dry.case.program))
    for mode, phases in PHASES.items():
        if mode == "answer" and not asks:
            continue
        count = sum(points[phase] for phase in phases)
        if mode == "outage":
            found += [Fault(mode, nth, calls) for nth in range(1, count + 1) for calls in OUTAGES]
        else:
            found += [Fault(mode, nth) for nth in range(1, count + 1)]
    status = dry.rows[""].status if answer is None else answer.outcome.status
    if status == "ERROR":
        found.append(Fault("restart"))
    return [fault for fault in found if not modes or fault.mode in modes]


def spread(faults: list[Fault], points: list[Point]) -> list[Fault]:
    """The modes in turn, and within a mode the store calls in turn: a call that a program makes once is as likely to
    be struck as one that it makes for each step."""
    of_call: Counter[tuple[str, str]] = Counter()
    of_mode: dict[str, list[tuple[int, Fault]]] = {}
    for fault in faults:
        call = (fault.mode, _call_at(fault, points))
        of_call[call] += 1
        of_mode.setdefault(fault.mode, []).append((of_call[call], fault))
    in_turn = [sorted(each, key=itemgetter(0)) for each in of_mode.values()]
    return [fault for row in zip_longest(*in_turn) for _, fault in filter(None, row)]


def _call_at(fault: Fault, points: list[Point]) -> str:
    """The store call that a fault strikes, when all goes as in the run without one."""
    met = (point.name for point in points if point.phase in PHASES.get(fault.mode, ()))
    return next(islice(met, fault.nth - 1, None), "") if fault.nth else ""


def expected_under(program: Program, answer: Answer | None, fault: Fault) -> Answer | None:
    """What must come of it under that fault; raises Racy where that is a matter of chance."""
    if answer is None:
        return None
    if fault.mode == "restart":
        return oracle.ask(program, restarted=True)
    if fault.costs_an_attempt or fault.mode == "cancel":
        return oracle.ask_under_faults(program)
    return answer
