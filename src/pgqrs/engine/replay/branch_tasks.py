"""The asyncio tasks of a handler: they hash alike in every pass, and know whether a deadline has cancelled them."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgqrs.engine.replay.branches import Branch

# Where asyncio's deadlines cancel a task: `asyncio.timeout`, and Python 3.11's `wait_for` the task that it has made.
_TIMERS = frozenset(
    getattr(function, "__code__", None)
    for function in (getattr(asyncio.Timeout, "_on_timeout", None), getattr(asyncio.tasks, "_cancel_and_wait", None))
) - {None}


class BranchTask(asyncio.Task[Any]):
    """A task of a handler that knows whether a deadline has cancelled it.

    asyncio keeps tasks in sets: `TaskGroup` cancels, and `asyncio.wait` returns, in the order of their hashes. By
    address it would be another order in every pass, so tasks hash by their number. The salt lies above the bits by
    which a set of one run is ordered, and keeps the runs of a process apart in the set of all tasks.
    """

    timed_out = False
    branch: Branch | None = None

    def __init__(self, coro: Coroutine[Any, Any, Any], *, of: Branch | None = None, **options: Any) -> None:
        # Before asyncio puts it into a set.
        self._hash = object.__hash__(self) if of is None else (of.salt << 40) | of.number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._hash

    def cancel(self, msg: Any | None = None) -> bool:
        if self.branch is not None:
            self.branch.unpark()
        self.timed_out = self.timed_out or _is_deadline(sys._getframe(1))  # noqa: SLF001 - there is no other way
        return super().cancel(msg)


def _is_deadline(frame: FrameType) -> bool:
    """Whether a task is cancelled here because its time is up: by asyncio, or by a scope of anyio's."""
    if frame.f_code in _TIMERS:
        return True
    if frame.f_code.co_name != "_deliver_cancellation":
        return False
    scope = frame.f_locals.get("origin", frame.f_locals.get("self"))
    return bool(getattr(scope, "deadline", math.inf) < math.inf)
