"""L4: random operations on a store and on a small model; answers compared at each, and the whole state.

    queues.py      the model of messages               chance.py   which operation comes next
    runs.py        the model of runs (records.py)      world.py    the same verbs on a real store
    schedules.py   the model of schedules              state.py    both states in the same words
                                                       walk.py     both together; a divergence made short

A walk is 200 operations on empty tables: queues with four consumers, three workflows with three workers, two
schedules, leases that hold and leases that were lost, a clock that jumps. Its number and the seed repeat it:
`make proof LAYERS=model ON=sqlite SEED=7 CASE=12` carries out that walk alone, and compares the state after each
operation.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pgqrs
from proof.databases import fresh
from proof.model import walk
from proof.model.world import World
from proof.order import Order
from proof.table import Row

WANTED = 100_000
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
    # By the number of the walk: what all its answers come to.
    digests: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0


def prove(order: Order) -> Iterator[Row]:
    """One row for each backend, and one for each but the first: did it answer as the first did?"""
    # Each walk triggers without workers, and says so.
    logging.getLogger("pgqrs").setLevel(logging.ERROR)
    case = os.environ.get("CASE")
    tallies: dict[str, Tally] = {}
    for backend in order.on:
        tally = tallies[backend] = asyncio.run(_on(backend, order, None if case is None else int(case)))
        yield _row(backend, order, tally, single=case is not None)
    first, *others = tallies
    for backend in others:
        yield _same(first, backend, order, tallies)


async def _on(backend: str, order: Order, case: int | None) -> Tally:
    world = await World.open(_quick(fresh(order, backend)))
    tally = Tally()
    began = time.monotonic()
    try:
        while case is None or tally.walks == 0:
            number = tally.walks if case is None else case
            await _one(world, backend, order, number, tally, every=EVERY if case is None else 1)
            tally.seconds = time.monotonic() - began
            if tally.operations >= WANTED or (not order.full and tally.seconds > SHORT_SECONDS):
                break
    finally:
        await world.store.close()
    return tally


async def _one(world: World, backend: str, order: Order, number: int, tally: Tally, *, every: int) -> None:
    limits = number % LIMITED == LIMITED - 1
    done = await walk.walk(world, f"{order.seed}-{number}", limits=limits, every=every)
    tally.walks += 1
    tally.operations += done.operations
    tally.refused += done.refused
    if not limits:
        tally.digests[number] = done.digest
    if done.diverged:
        tally.diverged.append(number)
        short = await walk.shortest(world, done.path)
        print(f"walk {number} on {backend}, seed {order.seed}: {short.diverged or done.diverged}")
        print(
            f"  {len(short.path)} of {done.operations} operations do; repeat with: {_command(backend, order, number)}"
        )
        print("\n".join(walk.told(short.path or done.path)), flush=True)


def _quick(config: pgqrs.Config) -> pgqrs.Config:
    """In memory where that can be: the same driver, and no disk to wait for."""
    return config if config.backend == "postgres" else replace(config, dsn=f"{config.backend}://:memory:")


def _command(backend: str, order: Order, number: int | None = None) -> str:
    form = " FULL=1" if order.full and number is None else ""
    case = "" if number is None else f" CASE={number}"
    return f"make proof LAYERS=model ON={backend} SEED={order.seed}{form}{case}"


def _row(backend: str, order: Order, tally: Tally, *, single: bool) -> Row:
    enough = tally.operations >= WANTED or not order.full or single
    return Row(
        number=3,
        what="model operations, state compared",
        on=backend,
        seen=f"{tally.operations:,}, {len(tally.diverged)} divergences",
        wanted=f"{'100,000' if order.full else 'some'}, 0 divergences",
        good=enough and tally.operations > 0 and not tally.diverged,
        command=_command(backend, order, tally.diverged[0] if tally.diverged else None),
        seconds=tally.seconds,
    )


def _same(first: str, other: str, order: Order, tallies: dict[str, Tally]) -> Row:
    """Both walked the same way: the same answers in the same order (B5.14)."""
    ours, theirs = tallies[first].digests, tallies[other].digests
    both = ours.keys() & theirs.keys()
    different = sorted(number for number in both if ours[number] != theirs[number])
    if different:
        command = _command(f"{first},{other}", order, different[0])
        print(f"walk {different[0]} answers differently on {first} and {other}; repeat with: {command}", flush=True)
    return Row(
        number=3,
        what=f"walks answered as {first} answers them",
        on=other,
        seen=f"{len(both) - len(different):,} of {len(both):,}",
        wanted="all",
        good=bool(both) and not different,
        command=_command(f"{first},{other}", order, different[0] if different else None),
    )
