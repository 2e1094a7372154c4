"""Mutants: the library broken on purpose, one promise at a time; some test must notice each of them.

    mutant.py    what a mutant is, and a copy of the library that has it
    source.py    the part of the library that a mutant changes, by its name
    fences.py leases.py steps.py errors.py lives.py writes.py      the mutants
    runner.py    tests on a copy, in a process of their own, and the verdict
    witness.py   a pytest plugin in that process
    page.py      docs/reference/mutants.md

The short form tries a dozen, chosen by the seed; FULL=1 all. CASE=name[,name] tries those, and KILLERS="tests/..."
gives them to other tests than their own.
"""

import os
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proof.mutants import ends, errors, fences, leases, lives, page, steps, writes
from proof.mutants.mutant import Mutant, copy_of
from proof.mutants.runner import Verdict, run, try_mutant
from proof.order import Order
from proof.table import Row

MUTANTS: tuple[Mutant, ...] = (
    *fences.MUTANTS,
    *leases.MUTANTS,
    *steps.MUTANTS,
    *errors.MUTANTS,
    *ends.MUTANTS,
    *lives.MUTANTS,
    *writes.MUTANTS,
)

_A_DOZEN = 12
# What the issue asks for.
_AT_LEAST = 30
_AT_A_TIME = 2


def prove(order: Order) -> Iterator[Row]:
    began = time.monotonic()
    case, killers = os.environ.get("CASE", ""), os.environ.get("KILLERS", "").split()
    mutants = _chosen(order, case)
    red = dict(_red_without(order, mutants)) if not killers else {}
    verdicts = list(_verdicts(order, mutants, red, killers))
    if order.full and not case and {each.on for each in MUTANTS} <= set(order.on):
        page.write(verdicts)
    wanted = f"all, at least {_AT_LEAST}" if order.full and not case else "all"
    killed = sum(verdict.killed for verdict in verdicts)
    enough = len(verdicts) >= _AT_LEAST or wanted == "all"
    yield Row(
        number=5,
        what="mutants killed" if order.full or case else f"mutants killed, some of {len(MUTANTS)}",
        on="+".join(sorted({each.on for each in mutants})),
        seen=f"{killed} of {len(verdicts)}",
        wanted=wanted,
        good=killed == len(verdicts) > 0 and enough,
        command=_command(order, ",".join(verdict.mutant.name for verdict in verdicts if not verdict.killed) or case),
        seconds=time.monotonic() - began,
    )


def _chosen(order: Order, case: str) -> list[Mutant]:
    possible = [mutant for mutant in MUTANTS if order.asks_for(mutant.on)]
    if case:
        names = case.split(",")
        if unknown := set(names) - {mutant.name for mutant in possible}:
            raise SystemExit(f"CASE: no mutant {', '.join(sorted(unknown))} on {', '.join(order.on)}")
        return [mutant for mutant in possible if mutant.name in names]
    if order.full:
        return possible
    return random.Random(order.seed).sample(possible, min(_A_DOZEN, len(possible)))


def _red_without(order: Order, mutants: list[Mutant]) -> Iterator[tuple[tuple[str, str], str]]:
    """The killers that fail on the library as it is, each tried once: those kill nothing."""
    for backend in sorted({mutant.on for mutant in mutants}):
        copy = copy_of(None, order.folder / f"as-it-is-{backend}")
        tests = sorted({test for mutant in mutants if mutant.on == backend for test in mutant.killers})
        seen = run(copy, tests, on=backend, postgres=order.postgres, first=False)
        if seen.trouble:
            yield from (((backend, test), seen.trouble) for test in tests)
        for failure in seen.failures:
            yield (backend, failure["test"].partition("[")[0]), failure["said"]


def _verdicts(
    order: Order, mutants: list[Mutant], red: dict[tuple[str, str], str], killers: list[str]
) -> Iterator[Verdict]:
    def tried(mutant: Mutant) -> Verdict:
        for test in mutant.killers:
            if (mutant.on, test) in red:
                return Verdict(mutant, killed=False, by=f"{test} fails without it", said=red[mutant.on, test])
        folder: Path = order.folder / mutant.name
        try:
            return try_mutant(mutant, folder, postgres=order.postgres, killers=killers)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for verdict in pool.map(tried, mutants):
            if not verdict.killed:
                print(f"    {verdict.mutant.name}: {verdict.by} {verdict.said}".rstrip())
                print(f"    repeat with: {_command(order, verdict.mutant.name)}", flush=True)
            elif killers or os.environ.get("CASE"):
                print(f"    {verdict.mutant.name}: killed by {verdict.by}: {verdict.said}", flush=True)
            yield verdict


def _command(order: Order, case: str) -> str:
    chosen = f"CASE={case} " if case else ("FULL=1 " if order.full else f"SEED={order.seed} ")
    return f"{chosen}make proof LAYERS=mutants ON={','.join(order.on)}"
