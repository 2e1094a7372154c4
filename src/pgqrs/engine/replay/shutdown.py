"""How a pass is brought to its end: the handler hears of it, what is in flight finishes or is given up."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from pgqrs.engine.replay.branches import Branch, current_branch
from pgqrs.engine.replay.unwinding import Halt
from pgqrs.errors import PgqrsError

if TYPE_CHECKING:
    from pgqrs.engine.replay.run_pass import RunPass

log: logging.Logger = logging.getLogger("pgqrs.run")


class PassShutdown:
    """Ends what a handler has begun, whether the handler has returned or its run is another worker's."""

    __slots__ = ("_giving_up", "_loop", "_of", "_patience", "on_stuck")

    def __init__(self, run_pass: RunPass, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        """`patience` is how long, in seconds, what was cancelled may take to end."""
        # Weak: a pass is gone when it is over, and not when the garbage is collected.
        self._of = weakref.ref(run_pass)
        self._loop = loop
        self._patience = patience
        # Called with the handler's task when it does not end although it was cancelled.
        self.on_stuck: Callable[[asyncio.Task[Any]], None] | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    @property
    def _run_pass(self) -> RunPass:
        if (run_pass := self._of()) is None:
            raise AssertionError("what asks has the pass")
        return run_pass

    def on_halt(self) -> None:
        """A part of the handler found that the pass is over: the rest of it hears of that."""
        # The branch that found out unwinds by itself; the handler may wait for another.
        self._loop.call_soon(self._tell_handler, current_branch.get(), tuple(self._run_pass.branches.live))

    def refuse(self, error: PgqrsError) -> None:
        """As `on_halt`, but found by a timer: no part of the handler may hear first that the timer's time is up."""
        self._run_pass.lease.halt_from_outside(error)
        self._tell_handler(None, tuple(self._run_pass.branches.live))

    def _tell_handler(self, knows: Branch | None, then_live: Sequence[Branch]) -> None:
        run_pass = self._of()
        if run_pass is None or run_pass.is_done or run_pass.task is None:
            return
        halted = run_pass.lease.halted
        if halted is None:
            return
        if not run_pass.handler.is_async:
            run_pass.resting.unwind(Halt(halted))
            return
        if knows is not run_pass.root:
            run_pass.task.cancel()
        # Not those that a `finally` has begun since: they are part of the way out.
        live = run_pass.branches.live
        run_pass.branches.cancel({branch.task for branch in live if branch not in then_live})

    def abandon(self) -> None:
        """The run is another worker's, or about to be: nothing more begins here, and what is in flight is ended."""
        run_pass = self._run_pass
        halt = run_pass.lease.abandon()
        if not run_pass.handler.is_async:
            # An async handler is cancelled; a thread that waits here would wait forever.
            run_pass.resting.unwind(halt)
        run_pass.in_flight.cancel()

    def on_lost(self) -> None:
        """From the heartbeat's thread: the lease is gone."""
        if (run_pass := self._of()) is not None:
            log.warning("run %d: lease lost", run_pass.claim.run_id)
            self._loop.call_soon_threadsafe(self._stop, run_pass)

    def _stop(self, run_pass: RunPass) -> None:
        # An outcome on its way to the database hears there whether the lease still held.
        if not run_pass.lease.held.settling and run_pass.task is not None:
            self.abandon()
            run_pass.task.cancel()
            if self.on_stuck is not None:
                self._giving_up = self._loop.call_later(self._patience, self.on_stuck, run_pass.task)

    async def wind_up(self) -> None:
        """The handler is done: what is still in flight finishes and is recorded, then its other tasks are ended."""
        run_pass = self._run_pass
        while run_pass.in_flight:
            if run_pass.lease.halted is not None:
                run_pass.in_flight.cancel()
            if not await _in_time(run_pass.in_flight.landed(), self._patience if run_pass.is_unwinding else None):
                log.warning("run %d: a step does not end although it was cancelled", run_pass.claim.run_id)
                break
        tasks = run_pass.branches.cancel()
        if tasks and not await _in_time(asyncio.wait(tasks), self._patience):
            log.warning("run %d: a task of the handler does not end although it was cancelled", run_pass.claim.run_id)

    @property
    def is_quiet(self) -> bool:
        """True when nothing is in flight, and no task of the handler is left."""
        return not self._run_pass.in_flight and len(self._run_pass.branches.live) <= 1

    def close(self) -> None:
        self.on_stuck = None
        if self._giving_up is not None:
            self._giving_up.cancel()


async def _in_time(work: Awaitable[Any], seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
