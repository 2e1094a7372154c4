"""Random programs that go by the order of results: the `number`th of a seed is always the same one.

Branches share a queue or a lock, race one another, fail beside one another and wait: what comes of such a program
depends on how long things take, and the oracle has no answer (`Racy`).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from proof.programs import oracle
from proof.programs.answers import Ambiguous, Racy
from proof.programs.generator import MOST_DEPTH, MOST_STATEMENTS, TRIES, Generator
from proof.programs.grammar import Doing, Hold, Pool, Program, Race, Statement, Step, Transact, Try, size
from proof.programs.virtual import Stuck


def generate_racy(seed: int, number: int) -> Program:
    """A program that is a race."""
    for attempt in range(TRIES):
        program = _Generator(random.Random(f"{seed} {number} {attempt} racy")).program()
        if 2 <= size(program) <= MOST_STATEMENTS and _is_race(program):
            return program
    raise AssertionError(f"no racy program {number} of seed {seed} in {TRIES} tries")


def _is_race(program: Program) -> bool:
    try:
        oracle.ask(program)
    except (Ambiguous, Stuck):
        return False
    except Racy:
        return True
    return False


class _Generator(Generator):
    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._is_holding = False

    def program(self) -> Program:
        attempts = self._rng.choice([1, 2, 3])
        return Program(self._block(0, most=4), attempts=attempts)

    def _statement(self, depth: int, *, handling: bool) -> Statement:
        if self._plain or depth >= MOST_DEPTH or self._rng.random() > (0.25 if depth else 0.5):
            return super()._statement(depth, handling=handling)
        makers: list[tuple[float, Callable[[int], Statement]]] = [
            (2, self._pool),
            (1.5, self._race),
            (1, self._group),
            (1, self._gather),
            (0 if self._is_holding else 1.5, self._hold),
        ]
        [make] = self._rng.choices([make for _, make in makers], [weight for weight, _ in makers])
        return make(depth + 1)

    def _pool(self, depth: int) -> Statement:
        branches = tuple(self._block(depth + 1, most=2) for _ in range(self._rng.randint(2, 5)))
        return Pool(self._name("k"), branches, self._rng.choice([2, 2, 3]))

    def _race(self, depth: int) -> Statement:
        how = self._rng.choice(["first", "each"])
        return Race(self._name("v"), self._branches(depth), how, ends=self._rng.random() < 0.7)

    def _hold(self, depth: int) -> Statement:
        # One lock, and never twice by the same branch: that would wait for itself.
        self._is_holding = True
        try:
            return Hold(self._name("h"), self._block(depth, most=2))
        finally:
            self._is_holding = False

    def _try(self, depth: int) -> Statement:
        """A TaskGroup cancels its tasks in the order of a set: what they do then takes nothing from one another."""
        made = super()._try(depth)
        assert isinstance(made, Try)
        return dataclasses.replace(made, final=tuple(each for each in made.final if isinstance(each, Doing)))

    # Each has a name of its own: an attempt that takes another way must not find the records of other statements.

    def _step(self) -> Statement:
        made = super()._step()
        assert isinstance(made, Step)
        return dataclasses.replace(made, called="")

    def _transact(self) -> Statement:
        made = super()._transact()
        assert isinstance(made, Transact)
        return dataclasses.replace(made, called="")
