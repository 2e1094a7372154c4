"""Programs: random handlers on the engine and in an oracle, under faults; they must agree.

    grammar.py     a handler as data                     generator.py   random ones
    errors.py      errors that programs raise            walker.py      executes one, whatever its verbs do
    oracle.py      what must come of a program (answers.py): memory.py executes it in memory, on a loop of virtual.py
    handlers.py    its verbs on the engine               logs.py        effects, and what each pass observed
    faults.py      what strikes, and where               world.py       one database; execution.py one execution on it
    judge.py       do they agree?                        bench.py       one program under its faults
    races.py       random programs that go by the order of results: no oracle knows what comes of them
    agreement.py   do the passes of such a program agree with one another, and with replaying.py, which repeats them?
    shrink.py      a failing program made small          printing.py    and shown as a test (single.py runs it)
    crew.py        many programs, side by side           kit.py         the same programs for `pgqrs.testing`
    breakages.py   the engine broken on purpose: does the layer notice? (hunt.py runs on a broken copy)

COUNT=2000 executes about so many programs x faults on each database; CASE=17 the 17th program of the seed alone, and
CASE="17 kill@5" that under one fault; CASE="r17 kill@5" the 17th racy program; CASE=map-order one breakage.
MODES=kill,lost leaves out the other faults; COUNT is for each of the two kinds of programs.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from proof.order import Order
from proof.programs import breakages, kit, printing, shrink
from proof.programs.answers import Answer, Racy
from proof.programs.bench import NONE, Bench, Divergence, Report, expected_under, faults_for, read_case
from proof.programs.crew import Crew
from proof.programs.faults import Fault
from proof.programs.generator import generate
from proof.programs.grammar import Program
from proof.programs.oracle import ask
from proof.programs.printing import compact
from proof.programs.single import config_for
from proof.programs.virtual import Stuck
from proof.table import Row

# Side by side: the smallest machine we care about has two cores.
PROCESSES = 2
WANTED = {"sqlite": 10_000, "postgres": 3_000, "turso": 1_000}
SHORT = {"sqlite": 800, "postgres": 250, "turso": 150}
# Of racy programs.
WANTED_RACY = {"sqlite": 3_000, "postgres": 1_000, "turso": 300}
SHORT_RACY = {"sqlite": 200, "postgres": 80, "turso": 40}
# How many programs the instruments of pgqrs.testing get, briefly and in full: each crash takes them a while.
INSTRUMENTS = {False: 8, True: 60}
# Of each program; small ones have fewer, and get them all.
MOST_FAULTS = 20
# So many kinds of divergences are made small and shown; the rest are counted.
_MOST_SHOWN = 8
_SHRINK_SECONDS = 40.0
_TELL_EVERY = 1_000
# What the issue asks for.
_LEAST_BREAKAGES = 15


@dataclass(slots=True)
class Tally:
    is_racy: bool = False
    executed: int = 0
    missed: int = 0
    programs: int = 0
    by_mode: Counter[str] = field(default_factory=Counter)
    diverged: list[Divergence] = field(default_factory=list)

    def add(self, report: Report) -> None:
        self.programs += 1
        self.executed += report.executed
        self.missed += report.missed
        self.by_mode.update(report.by_mode)
        self.diverged += report.diverged


def prove(order: Order) -> Iterator[Row]:
    case = os.environ.get("CASE", "")
    if breakages.chosen_of(order, case) and case:
        yield _breakages(order, case)
        return
    for backend in order.on:
        for is_racy in (False, True):
            if case and case.startswith("r") != is_racy:
                continue
            began = time.monotonic()
            tally = Tally(is_racy)
            if case:
                tally.add(_one(order, backend, case))
            else:
                _many(order, backend, tally)
            seconds = time.monotonic() - began
            _show(order, backend, tally)
            yield _row(order, backend, tally, seconds, single=bool(case))
    if not case and order.asks_for("sqlite"):
        yield _instruments(order)
        yield _breakages(order)


def _row(order: Order, backend: str, tally: Tally, seconds: float, *, single: bool) -> Row:
    wanted = _asked(order, backend, tally) if order.full and not single else 1
    missed = f", {tally.missed} not reached" if tally.missed else ""
    first = tally.diverged[0] if tally.diverged else None
    return Row(
        number=11,
        what=_what(tally),
        on=backend,
        seen=f"{tally.executed:,} of {tally.programs:,} programs, {len(tally.diverged)} divergences{missed}",
        wanted=f"{'at least ' + format(wanted, ',') if wanted > 1 else 'some'}, 0 divergences",
        good=not tally.diverged and tally.executed >= wanted,
        command=_command(order, backend, first),
        seconds=seconds,
    )


def _what(tally: Tally) -> str:
    kinds = f"({len(tally.by_mode)} kinds)"
    return f"racy programs x faults {kinds}: passes agree" if tally.is_racy else f"programs x faults {kinds}"


def _instruments(order: Order) -> Row:
    """What `pgqrs.testing` says of the same programs; it has a database of its own."""
    began = time.monotonic()
    programs = list(itertools.islice(kit.suitable(order.seed), INSTRUMENTS[order.full]))
    wrong = caught = 0
    for number, program in enumerate(programs):
        said = kit.disagreements(program)
        said += [f"{name} does not notice chance" for name in kit.unnoticed(program)]
        wrong += bool(said)
        caught += not any("chance" in each for each in said)
        if said:
            print(f"    suitable program {number} of seed {order.seed}: {'; '.join(said)}\n    {compact(program)}")
    return Row(
        number=11,
        what="programs in the instruments of pgqrs.testing",
        on="sqlite",
        seen=f"{len(programs) - wrong} of {len(programs)} agree; chance caught in {caught}",
        wanted="all agree; caught in all",
        good=not wrong and caught == len(programs),
        command=f"make proof LAYERS=programs ON=sqlite SEED={order.seed}{' FULL=1' if order.full else ''}",
        seconds=time.monotonic() - began,
    )


def _breakages(order: Order, case: str = "") -> Row:
    """The layer tested: it must notice every engine that is broken on purpose."""
    began = time.monotonic()
    chosen = breakages.chosen_of(order, case)
    killed = 0
    for verdict in breakages.verdicts(order, chosen):
        killed += verdict.killed
        if not verdict.killed or case or order.full:
            print(f"    {verdict.mutant.name}: {verdict.by}; {verdict.executed} executed", flush=True)
    total = len(breakages.BREAKAGES)
    return Row(
        number=11,
        what="broken engines noticed by programs" + ("" if order.full else f", some of {total}"),
        on="sqlite",
        seen=f"{killed} of {len(chosen)}",
        wanted="all" + (f", at least {_LEAST_BREAKAGES}" if order.full and not case else ""),
        good=killed == len(chosen) and (len(chosen) >= _LEAST_BREAKAGES or not order.full or bool(case)),
        command=f"make proof LAYERS=programs ON=sqlite SEED={order.seed}{' FULL=1' if order.full else ''}",
        seconds=time.monotonic() - began,
    )


def _asked(order: Order, backend: str, tally: Tally) -> int:
    wanted, short = (WANTED_RACY, SHORT_RACY) if tally.is_racy else (WANTED, SHORT)
    return int(os.environ.get("COUNT") or 0) or (wanted if order.full else short)[backend]


def _command(order: Order, backend: str, divergence: Divergence | None) -> str:
    if divergence is None:
        return f"make proof LAYERS=programs ON={backend} SEED={order.seed}{' FULL=1' if order.full else ''}"
    return f"make proof LAYERS=programs ON={backend} SEED={order.seed} CASE='{divergence.case}'"


# -- all of them -------------------------------------------------------------------------------------------------


def _many(order: Order, backend: str, tally: Tally) -> None:
    wanted = _asked(order, backend, tally)
    began = time.monotonic()
    told = _TELL_EVERY
    modes = tuple(mode for mode in os.environ.get("MODES", "").split(",") if mode)
    crew = Crew(
        PROCESSES,
        seed=order.seed,
        backend=backend,
        postgres=order.postgres,
        most=MOST_FAULTS,
        modes=modes,
        is_racy=tally.is_racy,
    )
    try:
        for report in crew.reports():
            tally.add(report)
            for each in report.diverged:
                print(f"    {backend}: CASE='{each.case}' {each.said[0][:120]}", flush=True)
            if tally.executed >= told:
                told += _TELL_EVERY
                pace = f"{tally.executed / (time.monotonic() - began):.0f}/s"
                print(
                    f"    {backend}: {tally.executed:,} of {wanted:,}, {len(tally.diverged)} diverged, {pace}",
                    flush=True,
                )
            if tally.executed >= wanted:
                break
    finally:
        crew.dismiss()


# -- one of them -------------------------------------------------------------------------------------------------


def _one(order: Order, backend: str, case: str) -> Report:
    is_racy, number, fault = read_case(case)
    bench = Bench(config_for(backend, order.postgres))
    try:
        if not fault:
            return bench.run(order.seed, number, 10**6, is_racy=is_racy)
        return bench.run_one(order.seed, number, Fault.of(fault), is_racy=is_racy)
    finally:
        bench.close()


def _show(order: Order, backend: str, tally: Tally) -> None:
    """One of each kind, made small."""
    kinds: dict[str, Divergence] = {}
    for each in sorted(tally.diverged, key=lambda each: shrink.weight(each.program)):
        kinds.setdefault(each.signature, each)
    counts = Counter(each.signature for each in tally.diverged)
    bench = Bench(config_for(backend, order.postgres))
    try:
        for each in list(kinds.values())[:_MOST_SHOWN]:
            program, fault, said = _made_small(bench, each)
            name = f"{'racy_' if each.is_racy else ''}program_{each.number}_{Fault.of(fault).mode}"
            print(f"\n    {counts[each.signature]} like this: {each.said[0][:200]}")
            print(f"    repeat with: {_command(order, backend, each)}\n")
            test = printing.as_test(program, fault, on=backend, name=name, said=said, is_racy=each.is_racy)
            print(test, flush=True)
    finally:
        bench.close()


def _made_small(bench: Bench, divergence: Divergence) -> tuple[Program, str, list[str]]:
    """The program, the fault and what is wrong, as small as can be found in a while."""
    best = (divergence.fault, divergence.said)

    def fails(program: Program) -> bool:
        nonlocal best
        found = first_divergence(bench, program, divergence.kind, is_racy=divergence.is_racy)
        if found is None:
            return False
        best = found
        return True

    small = shrink.shrunk(divergence.program, fails, seconds=_SHRINK_SECONDS)
    return small, *best


def first_divergence(
    bench: Bench, program: Program, kind: str, *, is_racy: bool = False
) -> tuple[str, list[str]] | None:
    """The first fault of the same mode under which the program fails in the same way."""
    mode = kind.rpartition(" ")[2]
    try:
        answer = _answer(program, is_racy=is_racy)
        dry, said = bench.judged(program, NONE, answer)
        if said or mode == "none":
            return (str(NONE), said) if _is_kind(said, kind, "none") else None
        for fault in faults_for(dry, answer, (mode,)):
            _, said = bench.judged(program, fault, expected_under(program, answer, fault))
            if _is_kind(said, kind, mode):
                return str(fault), said
    except (Racy, Stuck):
        return None
    return None


def _answer(program: Program, *, is_racy: bool) -> Answer | None:
    """A part of a racy program may be no race: its passes have to agree all the same."""
    if not is_racy:
        return ask(program)
    with suppress(Racy):
        ask(program)
    return None


def _is_kind(said: list[str], kind: str, mode: str) -> bool:
    return bool(said) and f"{said[0].partition(':')[0]} {mode}" == kind


__all__ = ["Divergence", "generate", "prove"]
