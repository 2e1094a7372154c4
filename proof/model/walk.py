"""Walks: random operations on the model and on a store, compared at each; what diverges is made short and told."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

import pgqrs
from pgqrs.db.upkeep import invariants
from proof.model import state
from proof.model.chance import Chance, Operation, names_in
from proof.model.queues import NotAllowedError, RefusedError
from proof.model.world import World

# Long enough for zombies, retries and restarts to pile up; short enough that the whole state is read in a blink.
LENGTH = 200
# Which of the given answers to a lease the model must judge, as more than one is allowed.
_JUDGED = ("dequeue", "turn", "claim")
# How long a divergence may be made shorter.
SHRINK_SECONDS = 60.0

Path = list[tuple[int, Operation]]


class DivergedError(Exception):
    """The store did what the model does not allow."""


@dataclass(slots=True)
class Walk:
    """What came of one."""

    operations: int = 0
    refused: int = 0
    path: Path = field(default_factory=list)
    # The same on every database.
    answers: list[str] = field(default_factory=list)
    diverged: str = ""


async def walk(world: World, seed: str, *, length: int = LENGTH, limits: bool = False, every: int = 1) -> Walk:
    """Draws operations and carries them out; stops at the first divergence. The state is compared each `every`-th.

    At its end the invariants must hold, too.
    """
    chance = Chance(random.Random(seed), limits=limits)
    await _begin(world)
    result = Walk()
    for number in range(1, length + 1):
        operation = chance.next(world.model)
        result.path.append((number, operation))
        await _carry_out(world, number, operation, result, compare=number % every == 0 or number == length)
        if result.diverged:
            return result
    # What the checker of invariants says of a database that is as it must be.
    result.diverged = "; ".join(map(str, await invariants.check(world.db)))
    return result


async def again(world: World, path: Path, *, closely: bool = False) -> Walk:
    """The given operations once more; those that refer to what is not there are left out.

    The state is compared at the end; `closely`, after each.
    """
    await _begin(world)
    result = Walk()
    for number, operation in path:
        if all(name in world.ids or name in world.model.leases for name in names_in(operation.given)):
            result.path.append((number, operation))
            await _carry_out(world, number, operation, result, compare=closely or number == path[-1][0])
        if result.diverged:
            break
    return result


async def shortest(world: World, path: Path) -> Walk:
    """As few of the operations as still diverge: what has to do with the last, then halves, quarters, one by one."""
    until = time.monotonic() + SHRINK_SECONDS
    best = await again(world, path, closely=True)
    if not best.diverged:
        return best
    slice_ = await again(world, _related(best.path))
    best = slice_ if slice_.diverged else best
    size = max(1, len(best.path) // 2)
    while time.monotonic() < until:
        shorter = await _without_some(world, best, size, until)
        if shorter is None and size == 1:
            break
        best, size = (shorter, size) if shorter else (best, size // 2)
    return best


def _related(path: Path) -> Path:
    """What made, or touched, whatever the last operation is about; and what names nothing: time, leases, queues."""
    about: set[int] = set()
    kept: Path = []
    for number, operation in reversed(path):
        named = {name.operation for name in names_in(operation.given)}
        if not kept or number in about or named & about:
            about |= named
            kept.append((number, operation))
        elif not named and operation.verb not in ("enqueue", "trigger"):
            kept.append((number, operation))
    return kept[::-1]


async def _without_some(world: World, best: Walk, size: int, until: float) -> Walk | None:
    # From the end: what came last before the divergence has least to do with how it began.
    for start in range(max(0, len(best.path) - size), -size, -size):
        kept = best.path[: max(0, start)] + best.path[max(0, start) + size :]
        tried = await again(world, kept) if kept else Walk()
        if tried.diverged:
            return tried
        if time.monotonic() > until:
            break
    return None


async def _begin(world: World) -> None:
    await state.empty(world)
    world.rewind()
    world.forget()


async def _carry_out(world: World, number: int, operation: Operation, result: Walk, *, compare: bool) -> None:
    result.operations += 1
    try:
        answer = await _both(world, number, operation)
        if compare:
            found = state.differences(await state.read(world), state.of_model(world.model))
            if found:
                raise DivergedError("; ".join(found[:5]))
    except (DivergedError, NotAllowedError) as error:
        result.diverged = str(error)
    except Exception as error:  # noqa: BLE001 - what nobody expected is a divergence, too
        where = traceback.extract_tb(error.__traceback__)[-1]
        result.diverged = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    else:
        result.refused += answer.startswith("refused")
        result.answers.append(f"{number} {operation.verb} {answer}")


async def _both(world: World, number: int, operation: Operation) -> str:
    """The answer, which is the same; raises DivergedError when it is not."""
    verb, given = operation
    world.model.begin(number)
    refusal = seen = None
    try:
        seen = await getattr(world, verb)(**given)
    except pgqrs.PgqrsError as error:
        refusal = type(error).__name__
    judged = {"seen": seen} if verb in _JUDGED else {}
    try:
        expected = getattr(world.model, verb)(**given, **judged)
    except RefusedError as error:
        if refusal != str(error):
            raise DivergedError(f"must be refused with {error}, and was {refusal or 'carried out'}") from None
        return f"refused: {refusal}"
    if refusal:
        raise DivergedError(f"refused with {refusal}, must answer {expected}")
    world.agree(seen, expected)
    await state.bind_runs(world)
    return str(sorted(expected) if isinstance(expected, set) else expected)


def told(path: Sequence[tuple[int, Operation]]) -> list[str]:
    return [f"    #{number:<4} {operation}" for number, operation in path]
