"""The number of each result of a pass: results reach the handler, and are recorded, in one order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.replay.arrivals import Arrivals, told
from pgqrs.engine.replay.branches import BranchSet
from pgqrs.engine.replay.interruption import uninterrupted
from pgqrs.engine.replay.suspension import Resting


class ResultOrder:
    """Gives results their numbers, and a handler with several branches its results in the order of these."""

    __slots__ = ("_arrivals", "_branches", "_loop", "_number_of", "_numbers", "_resting", "_steps")

    def __init__(
        self,
        steps: dict[str, RecordedStep],
        branches: BranchSet,
        resting: Resting,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._steps = steps
        self._branches = branches
        # It looks at the pass when no result waits any more.
        self._resting = resting
        self._loop = loop
        # The order in which results reach the handler; which numbers steps of this pass have in it.
        self._numbers = itertools.count(1 + (max(s.sequence or 0 for s in steps.values()) if steps else 0))
        self._number_of: dict[str, int] = {}
        self._arrivals: Arrivals | None = None

    @property
    def arrivals(self) -> Arrivals:
        if self._arrivals is None:
            self._arrivals = Arrivals(self._branches.stirring, self._loop, self._resting.look)
        return self._arrivals

    @property
    def has_arrivals(self) -> bool:
        """True while a result waits to be given to the handler."""
        return bool(self._arrivals)

    def number(self, step_id: str) -> int:
        """The number of a result that is about to be recorded; `is_numbered` is told when it is. From any thread."""
        number = next(self._numbers)
        if self._branches.has_several:
            self.arrivals.numbered(number, instead_of=self._number_of.get(step_id))
            self._number_of[step_id] = number
        return number

    def is_numbered(self, step_id: str) -> None:
        """The record is written, or will not be."""
        if self._arrivals is not None and (number := self._number_of.get(step_id)) is not None:
            self._arrivals.written(number)

    @contextmanager
    def held(self, step_id: str) -> Iterator[None]:
        """While the engine looks something up before it gives this recorded result: what follows it waits."""
        number = self._sequence(step_id) if self._branches.has_several else None
        if number is None:
            yield
            return
        self.arrivals.numbered(number)
        try:
            yield
        finally:
            self.arrivals.written(number)

    async def turn(self, *step_ids: str) -> None:
        """Wait until it is the turn of these results, which the handler gets together."""
        if not self._branches.has_several:
            return
        numbers = [number for each in step_ids if (number := self._sequence(each)) is not None]
        if numbers:
            run_pass = self._branches.run_pass()
            with nullcontext() if run_pass is None else uninterrupted(run_pass, step_ids[0]):
                await self.arrivals.turn(max(numbers))

    def _sequence(self, step_id: str) -> int | None:
        recorded = self._steps.get(step_id)
        return self._number_of.get(step_id) or (None if recorded is None else recorded.sequence)

    def in_turn(self, body: asyncio.Task[Any], step_id: str) -> asyncio.Future[None]:
        """Done when it is the turn of what this body of a step has recorded; see `arrivals.told`."""
        return told(self.arrivals, body, lambda: self._number_of.get(step_id))

    def branches_changed(self) -> None:
        if self._arrivals is not None:
            self._arrivals.move()

    def close(self) -> None:
        if self._arrivals is not None:
            self._arrivals.close()
