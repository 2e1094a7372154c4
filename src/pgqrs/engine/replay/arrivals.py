"""Results reach a handler one at a time, in the order of their numbers: in the first pass as in every replay.

A result gets its number when it is recorded. A branch that asks for a result waits here until it is the next one, and
no part of the handler moves any more. So whatever branches make of the order (a queue that they share, a lock, which
of them fails first, whom a TaskGroup cancels) is the same in every pass. A handler with one branch never waits here.

    numbered   its record is being written: no result with a higher number overtakes it
    waiting    recorded, in this pass or an earlier one, and not given to the handler yet
    given      when all is quiet, the waiting result with the lowest number

What is new begins after all that is recorded was given (`caught_up`).
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Any

from pgqrs.engine.replay.branches import Branch, current_branch
from pgqrs.engine.replay.task_states import is_ready
from pgqrs.engine.replay.unwinding import EngineSignal

# Turns of the event loop in which no branch moved: a task's callbacks run one turn after its end, and cancel later.
_QUIET_TURNS = 4
# A branch that asks the loop for another turn again and again is not waited for longer than this.
_MOST_TURNS = 1_000

# The number, which came first among equals, what the branch waits for, the branch.
_Entry = tuple[float, int, "asyncio.Future[None]", "Branch | None"]


class Arrivals:
    """The results of one pass that wait for their turn."""

    def __init__(
        self, stirring: dict[Branch, None], loop: asyncio.AbstractEventLoop, all_given: Callable[[], None]
    ) -> None:
        self._stirring = stirring
        self._loop = loop
        # Called when no result waits any more.
        self._all_given = all_given
        self._waiting: list[_Entry] = []
        self._count = 0
        # Numbers whose records are being written, and those of them that are written: a heap, emptied from its top.
        self._numbered: list[int] = []
        self._written: set[int] = set()
        self._next_turn: asyncio.Handle | None = None
        self._still = self._turns = 0

    def __bool__(self) -> bool:
        """True while a result waits."""
        return bool(self._waiting)

    def numbered(self, number: int, *, instead_of: int | None = None) -> None:
        """From any thread: its record is about to be written; an earlier try to write it was not carried out."""
        heapq.heappush(self._numbered, number)
        if instead_of is not None:
            self._written.add(instead_of)

    def written(self, number: int) -> None:
        """Its record is there, or will not be: its branch comes to wait in the next few turns, if it still lives."""
        self._written.add(number)
        self.move()

    async def turn(self, number: float) -> None:
        """Wait until it is the turn of the result with this number."""
        branch = current_branch.get()
        future: asyncio.Future[None] = self._loop.create_future()
        self.wait(number, future, branch)
        try:
            await future
        finally:
            self._unpark(branch)
            if future.cancelled():
                self._waiting = [each for each in self._waiting if each[2] is not future]
                heapq.heapify(self._waiting)
            self.move()

    async def caught_up(self) -> None:
        """Wait until the handler was given all that is recorded, and has done with it what it can."""
        await self.turn(math.inf)

    def wait(self, number: float, future: asyncio.Future[None], branch: Branch | None) -> None:
        """The future is done when it is the turn of the result with this number."""
        self._count += 1
        heapq.heappush(self._waiting, (number, self._count, future, branch))
        if branch is not None:
            branch.park()
        self.move()

    def move(self) -> None:
        """Something has moved: all must be still again before the next result is given."""
        self._still = 0
        if self._waiting and self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._turn)

    def close(self) -> None:
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._waiting.clear()

    def _turn(self) -> None:
        """Once in each turn of the event loop, while a result waits that may be given."""
        self._next_turn = None
        while self._waiting and self._waiting[0][2].done():
            # Its branch was cancelled.
            heapq.heappop(self._waiting)
        if not self._waiting:
            self._all_given()
            return
        if self._is_overtaking(self._waiting[0][0]):
            return
        self._turns += 1
        self._still = 0 if any(map(is_ready, self._stirring)) else self._still + 1
        if self._still >= _QUIET_TURNS or self._turns >= _MOST_TURNS:
            self._give()
        if self._waiting:
            self._next_turn = self._loop.call_soon(self._turn)
        else:
            self._all_given()

    def _is_overtaking(self, number: float) -> bool:
        while self._numbered and self._numbered[0] in self._written:
            self._written.discard(heapq.heappop(self._numbered))
        return bool(self._numbered) and self._numbered[0] < number

    def _give(self) -> None:
        """The next result; all that waits to begin something new begins together."""
        self._still = self._turns = 0
        first = self._waiting[0][0]
        while self._waiting and self._waiting[0][0] == first:
            _, _, future, branch = heapq.heappop(self._waiting)
            self._unpark(branch)
            if not future.done():
                future.set_result(None)
            if first != math.inf:
                return

    def _unpark(self, branch: Branch | None) -> None:
        if branch is not None:
            branch.unpark()


def told(arrivals: Arrivals, body: asyncio.Task[Any], number: Callable[[], int | None]) -> asyncio.Future[None]:
    """Done when it is the turn of what the body has recorded; at once when it has recorded nothing.

    Cancelling it does not cancel the body: when a branch is given up, its step in flight still ends and is recorded.
    """
    branch = current_branch.get()
    future: asyncio.Future[None] = body.get_loop().create_future()
    if branch is not None:
        # Until then it does not move, unless it is cancelled.
        branch.park()

    def is_done(_body: asyncio.Task[Any]) -> None:
        if future.done():
            return
        found = number()
        is_cut_off = body.cancelled() or isinstance(body.exception(), EngineSignal)
        if found is None or is_cut_off:
            if branch is not None:
                branch.unpark()
            future.set_result(None)
        else:
            arrivals.wait(found, future, branch)

    body.add_done_callback(is_done)
    return future
