"""The asyncio tasks of a handler: they hash alike in every pass, and know whether a deadline has cancelled them."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pgqrs.engine.replay.branches import Branch

# Where asyncio's deadlines cancel a task: `asyncio.timeout`, and Python 3.11's `wait_for` the task that it has made.
_TIMERS = frozenset(
    getattr(function, "__code__", None)
    for function in (getattr(asyncio.Timeout, "_on_timeout", None), getattr(asyncio.tasks, "_cancel_and_wait", None))
) - {None}


# Where `asyncio.wait` waits.
_WAIT = getattr(getattr(asyncio.tasks, "_wait", None), "__code__", None)


class BranchTask(asyncio.Task[Any]):
    """A task of a handler that knows whether a deadline has cancelled it.

    asyncio keeps tasks in sets: `TaskGroup` cancels, and `asyncio.wait` returns, in the order of their hashes. By
    address it would be another order in every pass, so tasks hash by their number. The salt lies above the bits by
    which a set of one run is ordered, and keeps the runs of a process apart in the set of all tasks.
    """

    timed_out: bool = False
    branch: Branch | None = None

    def __init__(self, coro: Coroutine[Any, Any, Any], *, of: Branch | None = None, **options: Any) -> None:
        # Before asyncio puts it into a set.
        self._hash = object.__hash__(self) if of is None else (of.salt << 40) | of.number
        if of is not None:
            # One that is to start eagerly runs here until it waits.
            of.run_in(self)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._hash

    def cancel(self, msg: Any | None = None) -> bool:
        if self.branch is not None:
            self.branch.unpark()
        is_deadline = _is_deadline(sys._getframe(1))  # noqa: SLF001 - there is no other way
        self.timed_out = self.timed_out or is_deadline
        return super().cancel(msg)

    def uncancel(self) -> int:
        left = super().uncancel()
        if not left:
            # The block with the deadline was left: the next cancellation is another matter.
            self.timed_out = False
        return left

    def add_done_callback(self, callback: Callable[[Self], object], **options: Any) -> None:
        if self.branch is not None:
            self._look_for_a_timer(sys._getframe(1))  # noqa: SLF001 - there is no other way
        super().add_done_callback(callback, **options)

    def _look_for_a_timer(self, frame: FrameType) -> None:
        """`asyncio.wait(timeout=)` cancels nothing when its time is up: what it waits for then is told of that."""
        if frame.f_code is not _WAIT:
            return
        timer, waiter = frame.f_locals.get("timeout_handle"), frame.f_locals.get("waiter")
        if timer is not None and waiter is not None:
            waiter.add_done_callback(lambda _waiter: None if timer.cancelled() else self._outwaited())

    def _outwaited(self) -> None:
        if self.branch is not None and self.branch.is_engaged() and not self.done():
            self.branch.outwaited()


# Where a task that waits for another one, or for a `gather`, passes on that it is cancelled.
_CANCEL = BranchTask.cancel.__code__
_GATHERED: Any = getattr(asyncio.tasks, "_GatheringFuture", asyncio.Future)
_CANCEL_GATHERED = getattr(_GATHERED.cancel, "__code__", None)


def _is_deadline(frame: FrameType | None) -> bool:
    """Whether a task is cancelled here because its time is up: by asyncio, or by a scope of anyio's.

    Or because that of the task is up which waits for it: from Python 3.12 on `wait_for` cancels that one.
    """
    while frame is not None and frame.f_code is _CANCEL_GATHERED:
        frame = frame.f_back
    if frame is None:
        return False
    if frame.f_code is _CANCEL:
        return bool(frame.f_locals["is_deadline"])
    if frame.f_code in _TIMERS:
        # Python 3.11's `wait_for` also ends its task when it is cancelled itself, and with it the future it awaits.
        waiter = None if frame.f_back is None else frame.f_back.f_locals.get("waiter")
        return waiter is None or not waiter.cancelled()
    if frame.f_code.co_name != "_deliver_cancellation":
        return False
    scope = frame.f_locals.get("origin", frame.f_locals.get("self"))
    return bool(getattr(scope, "deadline", math.inf) < math.inf)
