"""The asyncio tasks of a handler: they hash alike in every pass, and know whether a deadline has cancelled them."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine
from types import CoroutineType, FrameType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pgqrs.engine.replay.branches import Branch

# Where asyncio's deadlines cancel a task: `asyncio.timeout`, and Python 3.11's `wait_for` the task that it has made.
_TIMERS = frozenset(
    getattr(function, "__code__", None)
    for function in (getattr(asyncio.Timeout, "_on_timeout", None), getattr(asyncio.tasks, "_cancel_and_wait", None))
) - {None}


# Where `wait` waits, where `shield` and `gather` begin, and where Python 3.11's `wait_for` gives up.
_WAIT = getattr(getattr(asyncio.tasks, "_wait", None), "__code__", None)
_SHIELD = getattr(asyncio.shield, "__code__", None)
_GATHER = getattr(asyncio.gather, "__code__", None)
_GIVE_UP = getattr(getattr(asyncio.tasks, "_cancel_and_wait", None), "__code__", None)
# Where `asyncio.as_completed` stops waiting; the second name is Python 3.13's.
_AS_COMPLETED_IS_LATE = frozenset({"_on_timeout", "_handle_timeout"})


class BranchTask(asyncio.Task[Any]):
    """A task of a handler that knows whether a deadline has cancelled it.

    asyncio keeps tasks in sets: `TaskGroup` cancels, and `asyncio.wait` returns, in the order of their hashes. By
    address it would be another order in every pass, so tasks hash by their number. The salt lies above the bits by
    which a set of one run is ordered, and keeps the runs of a process apart in the set of all tasks.
    """

    timed_out: bool = False
    branch: Branch | None = None
    # Called before it is cancelled: of a task that executes a handler.
    on_cancel: Callable[[], None] | None = None
    # What others wait for in its place, because of `asyncio.shield`.
    shields: tuple[asyncio.Future[Any], ...] = ()

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
        if self.on_cancel is not None:
            self.on_cancel()
        is_deadline = _is_deadline(sys._getframe(1))  # noqa: SLF001 - there is no other way
        if self.branch is not None:
            if is_deadline:
                self.branch.time_out()
            self.branch.unpark()
            waiter = getattr(self, "_fut_waiter", None)
            if waiter is not None and waiter.done():
                self.branch.missed = getattr(waiter, "_exception", None)
        self.timed_out = self.timed_out or is_deadline
        return super().cancel(msg)

    def uncancel(self) -> int:
        left = super().uncancel()
        if not left:
            # The block with the deadline was left: the next cancellation is another matter.
            self.timed_out = False
            if self.branch is not None and self.branch.is_halted():
                # The engine's own stands, whatever else is taken back: from Python 3.13 on a block with a deadline
                # would make a TimeoutError of it.
                return 1
        return left

    def add_done_callback(self, callback: Callable[[Self], object], **options: Any) -> None:
        # Of its own loop, which may have ended: `asyncio.run` gathers what is left after that.
        waiting = None if self.branch is None else asyncio.current_task(self.get_loop())
        # Else the engine waits for the handler.
        if isinstance(waiting, BranchTask) and waiting.branch is not None:
            frame = sys._getframe(1)  # noqa: SLF001 - there is no other way
            if frame.f_code is _WAIT:
                self._look_for_a_timer(frame)
            elif frame.f_code is _SHIELD:
                self._be_shielded(frame.f_locals["outer"], waiting)
            elif frame.f_code is _GATHER and self.branch is not None:
                # The dict is made in each call: it stands for the call.
                self.branch.gathered_in = frame.f_locals["arg_to_fut"]
                self.branch.is_collected = bool(frame.f_locals["return_exceptions"])
        super().add_done_callback(callback, **options)

    def remove_done_callback(self, callback: Callable[[Self], object], /) -> int:
        if self.branch is not None:
            code = sys._getframe(1).f_code  # noqa: SLF001 - there is no other way
            if code.co_name in _AS_COMPLETED_IS_LATE and code.co_filename == asyncio.tasks.__file__:
                self._outwait()
        return super().remove_done_callback(callback)

    def _look_for_a_timer(self, frame: FrameType) -> None:
        """`asyncio.wait(timeout=)` cancels nothing when its time is up: what it waits for then is told of that."""
        timer, waiter = frame.f_locals.get("timeout_handle"), frame.f_locals.get("waiter")
        if timer is not None and waiter is not None:
            waiter.add_done_callback(lambda _waiter: None if timer.cancelled() else self._outwait())

    def _be_shielded(self, shield: asyncio.Future[Any], waiting: asyncio.Task[Any]) -> None:
        """Python 3.11's `wait_for` cancels the shield, which is no task, when its time is up."""
        self.shields = (*self.shields, shield)
        shield.add_done_callback(lambda _shield: self._outwait() if _is_giving_up(waiting) else None)

    def _outwait(self) -> None:
        if self.branch is not None and self.branch.is_engaged() and not self.done():
            self.branch.outwait()


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
        return _is_up(frame.f_back)
    if frame.f_code.co_name != "_deliver_cancellation":
        return False
    scope = frame.f_locals.get("origin", frame.f_locals.get("self"))
    return bool(getattr(scope, "deadline", math.inf) < math.inf)


def _is_up(waits: FrameType | None) -> bool:
    """Python 3.11's `wait_for` also ends its task when it is cancelled itself, and with it the future it awaits."""
    waiter = None if waits is None else waits.f_locals.get("waiter")
    return waiter is None or not waiter.cancelled()


def _is_giving_up(task: asyncio.Task[Any]) -> bool:
    """Whether the task is in Python 3.11's `wait_for`, whose time is up."""
    outer, inner = None, task.get_coro()
    while isinstance(inner, CoroutineType) and isinstance(inner.cr_await, CoroutineType):
        outer, inner = inner, inner.cr_await
    is_in_it = isinstance(inner, CoroutineType) and inner.cr_code is _GIVE_UP
    return is_in_it and outer is not None and _is_up(outer.cr_frame)
