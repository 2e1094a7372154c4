"""Crash it at every point: each store call, each mode, each backend; pairs of faults; each statement (L1, L2, L3).

    scenarios/     small programs with a known right end, their effects outside of the database, what handlers see
    faults.py      the modes: what strikes, and where it means something
    case.py        one case: fork, strike, recover with another process, check
    check.py       what must hold of effects and observations; what a stalled process may not have changed
    plan.py        which cases there are: learned from a dry run of each scenario
    world.py, clock.py, ledger.py      what a program sees: store, time, and what cannot be taken back

`CASE=sqlite/steps make proof LAYERS=crash` runs every case that begins so; a failure names its own. `MOST=2600` takes
so many of each kind, by the seed: more than the short form, sooner done than all of them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path

from proof.crash import plan
from proof.crash.case import Bench, Case, Result
from proof.crash.scenarios import SCENARIOS
from proof.memory import in_memory
from proof.order import Order
from proof.table import Row

# Side by side: the smallest machine we care about has two cores, and for a third of its time a case waits: for
# threads, connections and retries.
PROCESSES = 3
# How many of each in the short form; with all backends they take three minutes on two idle cores.
SHORT = {"points": 250, "statements": 50, "pairs": 50}
MOST = int(os.environ.get("MOST") or 0)
WANTED = {"points": 2_500, "statements": 0, "pairs": 2_000}
# What is left for the eye of whoever waits.
TELL_EVERY = 500
WORDS = {
    "points": "crash points survived",
    "statements": "killed at every statement",
    "pairs": "pairs of faults survived",
}
DETAILS = Path(__file__).parent.parent / "results" / "crash-details.md"


@dataclass(slots=True)
class Tally:
    """What came of one kind of cases, on one backend."""

    counted: int = 0
    survived: int = 0
    # Its point was not reached this time, so that it proved nothing: branches that run side by side differ.
    missed: int = 0
    first_bad: str = ""
    by_scenario: dict[str, list[int]] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        case = Case.of(result.case)
        if result.struck < len(case.faults) and not result.wrong:
            self.missed += 1
            return
        self.counted += 1
        row = self.by_scenario.setdefault(case.scenario, [0, 0])
        row[0] += 1
        if result.wrong:
            self.first_bad = self.first_bad or result.case
            print(f"    {'; '.join(result.wrong)}\n    repeat with: {_command(result.case)}", flush=True)
        else:
            self.survived += 1
            row[1] += 1


def prove(order: Order) -> Iterator[Row]:
    # In memory where that is possible: a killed process leaves its writes to the kernel, a disk would prove no more.
    folder = Path(tempfile.mkdtemp(prefix="pgqrs-crash-", dir=in_memory() or order.folder))
    tallies: dict[str, dict[str, Tally]] = {}
    with multiprocessing.get_context("fork").Pool(PROCESSES, _begin, (folder, order.postgres)) as pool:
        try:
            for backend in order.on:
                tallies[backend] = {}
                yield from _on(backend, order, pool, tallies[backend])
        finally:
            pool.close()
            pool.join()
            shutil.rmtree(folder, ignore_errors=True)
    if not os.environ.get("CASE"):
        _write_details(tallies)


def _on(backend: str, order: Order, pool: Pool, tallies: dict[str, Tally]) -> Iterator[Row]:
    rng = random.Random(f"{order.seed} {backend}")
    asked = os.environ.get("CASE", "")
    names = [name for name in SCENARIOS if plan.may_begin(asked, f"{backend}/{name}")]
    dry = {
        Case.of(result.case).scenario: result for result in pool.imap(_run, [(f"{backend}/{n}", None) for n in names])
    }
    for result in dry.values():
        if result.wrong:
            raise RuntimeError(f"{result.case} goes wrong without any fault: {'; '.join(result.wrong)}")
    everything = {
        "points": plan.points(backend, dry),
        "statements": plan.statements(backend, dry),
    }
    results: list[Result] = []
    for what, planned in everything.items():
        cases = _chosen(planned, what, order, rng, asked)
        results_of = _carried_out(pool, cases, dry)
        yield from _tell(what, backend, order, results_of, tallies, results, of=len(planned), asked=len(cases))
    if asked:
        # Thousands: one of them can be asked for by its name.
        planned = cases = [asked] if asked.count("/") == 3 else []
    else:
        planned = plan.pairs(backend, results, rng)
        cases = _chosen(planned, "pairs", order, rng, asked)
    results_of = _carried_out(pool, cases, dry)
    yield from _tell("pairs", backend, order, results_of, tallies, [], of=len(planned), asked=len(cases))


def _chosen(cases: list[str], what: str, order: Order, rng: random.Random, asked: str) -> list[str]:
    if asked:
        return [case for case in cases if case.startswith(asked)]
    return cases if order.full else rng.sample(cases, min(MOST or SHORT[what], len(cases)))


def _carried_out(pool: Pool, cases: list[str], dry: dict[str, Result]) -> Iterator[Result]:
    given = ((case, dry[Case.of(case).scenario]) for case in cases)
    return pool.imap_unordered(_run, given)


def _tell(
    what: str,
    backend: str,
    order: Order,
    results: Iterator[Result],
    tallies: dict[str, Tally],
    seen: list[Result],
    *,
    of: int,
    asked: int,
) -> Iterator[Row]:
    began = time.monotonic()
    tally = tallies[what] = Tally()
    for number, result in enumerate(results, 1):
        seen.append(result)
        tally.add(result)
        if number % TELL_EVERY == 0:
            print(f"    {backend}: {number:,} of {asked:,} {what}, {time.monotonic() - began:.0f} s", flush=True)
    if not tally.counted and not tally.missed:
        return
    many = order.full or WANTED["points"] <= MOST
    least = WANTED[what] if many and not os.environ.get("CASE") else 1
    some = f", of {of:,} that there are" if asked < of and not os.environ.get("CASE") else ""
    missed = f", {tally.missed} not reached" if tally.missed else ""
    yield Row(
        number=1,
        what=WORDS[what],
        on=backend,
        seen=f"{tally.survived:,}/{tally.counted:,} in {len(tally.by_scenario)} scenarios{missed}{some}",
        wanted=f"all of at least {least:,}" if least > 1 else "all",
        good=tally.survived == tally.counted >= least,
        command=_command(tally.first_bad or backend),
        seconds=time.monotonic() - began,
    )


def _command(case: str) -> str:
    return f"CASE='{case}' ON={case.partition('/')[0]} make proof LAYERS=crash"


def _write_details(tallies: dict[str, dict[str, Tally]]) -> None:
    """Survived of counted, for each scenario."""
    columns = [(backend, what) for backend, found in tallies.items() for what in found]
    lines = ["| scenario |" + "".join(f" {backend} {what} |" for backend, what in columns)]
    lines.append("|---|" + "---|" * len(columns))
    for name in SCENARIOS:
        cells = []
        for backend, what in columns:
            counted, survived = tallies[backend][what].by_scenario.get(name, (0, 0))
            cells.append(f" {survived}/{counted} |")
        lines.append(f"| {name} |" + "".join(cells))
    DETAILS.parent.mkdir(exist_ok=True)
    DETAILS.write_text("\n".join(lines) + "\n", encoding="utf-8")


# -- in the processes of the pool --------------------------------------------------------------------------------

_bench: Bench | None = None


def _begin(folder: Path, postgres: str) -> None:
    global _bench  # noqa: PLW0603 - one for each process of the pool
    _bench = Bench(folder / str(os.getpid()), postgres)


def _run(given: tuple[str, Result | None]) -> Result:
    assert _bench is not None
    text, expected = given
    with contextlib.suppress(KeyboardInterrupt):
        return _bench.run(Case.of(text), expected)
    return Result(text)
