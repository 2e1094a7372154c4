"""L4: random operations on a store and on a small model; answers compared at each, and the whole state.

    queues.py      the model of messages               chance.py   which operation comes next
    runs.py        the model of runs (records.py)      world.py    the same verbs on a real store
    schedules.py   the model of schedules              state.py    both states in the same words
                                                       walk.py     both together; a divergence made short

A walk is 200 operations on empty tables: queues with four consumers, three workflows with three workers, two
schedules, leases that hold and leases that were lost, a clock that jumps. Each walk starts at the same time, so its
number and the seed repeat it: `make proof LAYERS=model ON=sqlite SEED=7 CASE=12` carries out that walk alone, and
compares the state after each operation. CASE=0-12/3 carries out the walks before it, too: several processes take
turns, so every third of them was on the same database. The layer prints the first of these commands that shows the
failure again on fresh databases.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, zip_longest

import pgqrs
from proof.databases import fresh
from proof.model import walk
from proof.model.world import World
from proof.order import Order
from proof.table import Row

WANTED = 100_000
# Side by side: the smallest machine we care about has two cores, and walks wait for their database.
PROCESSES = 3
# The short form: all backends together in 90 s on two loaded cores.
SHORT_SECONDS = 24.0
# One operation in so many is followed by a look at the whole state; a divergence is then walked again with a look
# after each. Every fourth walk leases with limits, where databases may answer differently.
EVERY = 10
LIMITED = 4


@dataclass(slots=True)
class Tally:
    """What was walked on one backend."""

    walks: int = 0
    operations: int = 0
    refused: int = 0
    diverged: list[int] = field(default_factory=list)
    # By the number of the walk; without those in which databases may answer differently.
    answers: dict[int, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        """Count what was walked beside it, too."""
        self.walks += other.walks
        self.operations += other.operations
        self.refused += other.refused
        self.diverged = sorted([*self.diverged, *other.diverged])
        self.answers |= other.answers
        self.seconds = max(self.seconds, other.seconds)


def prove(order: Order) -> Iterator[Row]:
    """Yield one row for each backend, and one for each but the first: did it answer as the first did?"""
    # Each walk triggers without workers, which logs a warning.
    logging.getLogger("pgqrs").setLevel(logging.ERROR)
    cases = _cases(os.environ.get("CASE", ""))
    tallies: dict[str, Tally] = {}
    for backend in order.on:
        tally = tallies[backend] = _walked(backend, order, cases)
        yield _row(backend, order, tally, cases)
    first, *others = tallies
    for backend in others:
        yield _same(first, backend, order, tallies, cases)


def _cases(text: str) -> range | None:
    """Return the walks that CASE asks for: one, or all of 0-12, or every third of 1-13/3."""
    if not text:
        return None
    walks, _, step = text.partition("/")
    first, _, last = walks.partition("-")
    return range(int(first), int(last or first) + 1, int(step or 1))


def _walked(backend: str, order: Order, cases: range | None) -> Tally:
    """Walk in several processes, each on a database of its own; walks that are repeated, in this one."""
    if cases is not None:
        return asyncio.run(_on(backend, order, cases))
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        tally, *others = pool.starmap(_share, [(backend, order, first) for first in range(PROCESSES)])
        pool.close()
        pool.join()
    for each in others:
        tally.add(each)
    return tally


def _share(backend: str, order: Order, first: int) -> Tally:
    return asyncio.run(_on(backend, order, None, first=first))


async def _on(backend: str, order: Order, cases: range | None, *, first: int = 0, quietly: bool = False) -> Tally:
    """Walk the cases; without any, the `first` and each that comes PROCESSES later, until this share is done."""
    world = await World.open(_quick(fresh(order, backend)))
    tally = Tally()
    began = time.monotonic()
    try:
        for number in count(first, PROCESSES) if cases is None else cases:
            # A case that is repeated alone is looked at closely.
            every = 1 if cases is not None and len(cases) == 1 else EVERY
            await _one(world, backend, order, number, tally, every=every, quietly=quietly)
            tally.seconds = time.monotonic() - began
            enough = tally.operations >= WANTED / PROCESSES or (not order.full and tally.seconds > SHORT_SECONDS)
            if cases is None and enough:
                break
    finally:
        await world.store.close()
    return tally


async def _one(
    world: World, backend: str, order: Order, number: int, tally: Tally, *, every: int, quietly: bool
) -> None:
    limits = number % LIMITED == LIMITED - 1
    done = await walk.walk(world, f"{order.seed}-{number}", limits=limits, every=every)
    tally.walks += 1
    tally.operations += done.operations
    tally.refused += done.refused
    if not limits:
        tally.answers[number] = done.answers
    if done.diverged:
        tally.diverged.append(number)
        if quietly:
            return
        short = await walk.shortest(world, done.path)
        print(f"walk {number} on {backend}, seed {order.seed}: {short.diverged or done.diverged}")
        print(f"  {len(short.path)} of {done.operations} operations do:")
        print("\n".join(walk.told(short.path or done.path)), flush=True)


def _quick(config: pgqrs.Config) -> pgqrs.Config:
    """In memory where that can be: the same driver, and no disk to wait for."""
    return config if config.backend == "postgres" else replace(config, dsn=f"{config.backend}://:memory:")


def _command(on: str, order: Order, cases: range | None) -> str:
    form = " FULL=1" if order.full and cases is None else ""
    return f"make proof LAYERS=model ON={on} SEED={order.seed}{form}{_told_cases(cases)}"


def _told_cases(cases: range | None) -> str:
    if cases is None:
        return ""
    step = "" if cases.step == 1 else f"/{cases.step}"
    return f" CASE={cases[0]}" if len(cases) == 1 else f" CASE={cases[0]}-{cases[-1]}{step}"


def _repeating(order: Order, number: int, on: tuple[str, ...], shows: Callable[[dict[str, Tally]], bool]) -> range:
    """Return the walks that show a failure of this walk again: it alone, or with those before it on its database."""
    alone = range(number, number + 1)
    tallies = {backend: asyncio.run(_on(backend, order, alone, quietly=True)) for backend in on}
    return alone if shows(tallies) else range(number % PROCESSES, number + 1, PROCESSES)


def _row(backend: str, order: Order, tally: Tally, cases: range | None) -> Row:
    enough = tally.operations >= WANTED or not order.full or cases is not None
    if tally.diverged and cases is None:
        cases = _repeating(order, tally.diverged[0], (backend,), lambda again: bool(again[backend].diverged))
    command = _command(backend, order, cases)
    if tally.diverged:
        print(f"walk {tally.diverged[0]} diverges on {backend}; repeat with: {command}", flush=True)
    return Row(
        number=3,
        what="model operations, state compared",
        on=backend,
        seen=f"{tally.operations:,}, {len(tally.diverged)} divergences",
        wanted=f"{'100,000' if order.full else 'some'}, 0 divergences",
        good=enough and tally.operations > 0 and not tally.diverged,
        command=command,
        seconds=tally.seconds,
    )


def _different(ours: Tally, theirs: Tally) -> list[int]:
    """Return the walks that both walked and answered differently."""
    both = ours.answers.keys() & theirs.answers.keys()
    return sorted(number for number in both if ours.answers[number] != theirs.answers[number])


def _same(first: str, other: str, order: Order, tallies: dict[str, Tally], cases: range | None) -> Row:
    """Compare the answers to the same walks: the same ones in the same order (B5.14)."""
    ours, theirs = tallies[first], tallies[other]
    both = ours.answers.keys() & theirs.answers.keys()
    different = _different(ours, theirs)
    on = f"{first},{other}"
    if different and cases is None:
        cases = _repeating(
            order, different[0], (first, other), lambda again: bool(_different(again[first], again[other]))
        )
    command = _command(on, order, cases)
    if different:
        _tell_difference(different[0], {name: tallies[name].answers[different[0]] for name in (first, other)})
        print(f"  repeat with: {command}", flush=True)
    return Row(
        number=3,
        what=f"walks answered as {first} answers them",
        on=other,
        seen=f"{len(both) - len(different):,} of {len(both):,}",
        wanted="all",
        good=bool(both) and not different,
        command=command,
    )


def _tell_difference(number: int, answers: dict[str, list[str]]) -> None:
    """Print the first answer that differs; after it the walks may have drawn other operations."""
    lines = next(pair for pair in zip_longest(*answers.values(), fillvalue="nothing") if len(set(pair)) > 1)
    print(f"walk {number} is answered differently on {' and '.join(answers)}:")
    for name, line in zip(answers, lines, strict=True):
        print(f"  {name} answers {line}")
