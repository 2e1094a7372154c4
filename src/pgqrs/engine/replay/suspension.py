"""Putting a run to rest: when every part of its handler waits, the handler is unwound and the lease given up."""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from pgqrs.db.runs.records import ANY_OF, StepRecord, Suspended
from pgqrs.engine.replay.branches import Branch
from pgqrs.engine.replay.interruption import uninterrupted
from pgqrs.engine.replay.task_states import Pending, awaitable, awaited_by, has_deadline, pending
from pgqrs.engine.replay.unwinding import EngineSignal, Suspend
from pgqrs.errors import PermanentError
from pgqrs.types import RunStatus

if TYPE_CHECKING:
    from pgqrs.engine.replay.run_pass import RunPass

log: logging.Logger = logging.getLogger("pgqrs.run")

# A task of the handler that has not used the context yet may be about to: it gets this long before the run is put to
# rest without it. Longer waits belong into steps.
_GRACE_SECONDS = 1.0
# One that has used it, and the handler itself, get this long.
_OUTSIDE_SECONDS = 10.0
# So often a handler may be found about to move, one look after the other.
_MOST_READY_LOOKS = 1_000
# How soon a handler that waits for something outside of the context is looked at again: at first, and at most.
_SOON_SECONDS, _LATER_SECONDS = 0.01, 0.5


@dataclass(frozen=True, slots=True)
class Wait:
    """What a branch waits for. `retry` tells a step's own backoff from waiting for the world outside."""

    label: str
    step: StepRecord
    until: datetime | None = None
    signal: str | None = None
    # The child whose end it waits for; `is_any` when that alone shall wake the run, however many others it waits for.
    child: int | None = None
    is_any: bool = False
    retry: bool = False


class Resting:
    """The waits of one pass, and whether they are all that is left of it."""

    def __init__(self, run_pass: RunPass) -> None:
        self.suspended: bool = False
        # Weak: a pass is gone when it is over, and not when the garbage is collected.
        self._of = weakref.ref(run_pass)
        self._waits: dict[str, Wait] = {}
        self._blocked: dict[asyncio.Future[None], Branch] = {}
        self._next_look: asyncio.Handle | None = None
        self._delay = _SOON_SECONDS
        self._grace_from: float | None = None
        self._ready_looks = 0

    @property
    def _run_pass(self) -> RunPass:
        if (run_pass := self._of()) is None:
            raise AssertionError("what asks has the pass")
        return run_pass

    async def wait(self, *waits: Wait) -> NoReturn:
        """Raises Suspend when every other branch has come to rest too."""
        run_pass = self._run_pass
        run_pass.check_usable()
        branch = run_pass.branch()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for wait in waits:
            self._waits[wait.step.step_id] = wait
        branch.begin_wait()
        self._blocked[future] = branch
        self.look()
        try:
            with uninterrupted(run_pass, waits[0].step.step_id):
                await future
        finally:
            branch.end_wait()
            del self._blocked[future]
            if not self.suspended:
                # The handler itself gave this wait up: it ended the task that waited.
                for wait in waits:
                    self._waits.pop(wait.step.step_id, None)
        raise AssertionError("a wait does not return")

    def look(self) -> None:
        """Something has changed: if every branch waits now, the run is put to rest.

        Not in this turn of the event loop: what a task waits for can only be seen when it does not run.
        """
        if self._waits and self._is_possible():
            self._look_again(0.0)

    def _is_possible(self) -> bool:
        run_pass = self._run_pass
        if not self._waits or self.suspended or run_pass.lease.halted is not None:
            return False
        return not run_pass.in_flight and not run_pass.order.has_arrivals

    def _look(self) -> None:
        """If nothing is in flight and every branch waits, put the run to rest."""
        run_pass = self._run_pass
        self._next_look = None
        if not self._is_possible():
            return
        tasks = awaitable(run_pass.branches.live)
        states = {branch: pending(branch, tasks) for branch in run_pass.branches.live}
        if Pending.READY in states.values() and self._ready_looks < _MOST_READY_LOOKS:
            self._ready_looks += 1
            self._grace_from = None
            self._look_again(0.0)
            return
        if Pending.READY not in states.values():
            self._ready_looks = 0
        # One that is ready at each of so many looks polls for something: it waits, too, in its way.
        outside = [branch for branch, state in states.items() if state in (Pending.OUTSIDE, Pending.READY)]
        if not outside:
            self._rest()
            return
        uses_context = any(branch.engaged or branch is run_pass.root for branch in outside)
        # A thread that works ends its work some time, and cannot be cut short.
        is_thread = any(branch.task is None for branch in outside)
        self._rest_after(math.inf if is_thread else _OUTSIDE_SECONDS if uses_context else _GRACE_SECONDS)

    def _rest_after(self, seconds: float) -> None:
        """Nothing but tasks that wait for something else than the context keeps the run."""
        now = asyncio.get_running_loop().time()
        if self._grace_from is None:
            self._grace_from = now
        if now < self._grace_from + seconds:
            self._look_again(self._delay)
            self._delay = min(self._delay * 2, _LATER_SECONDS)
            return
        if seconds > _GRACE_SECONDS:
            log.warning(
                "run %d: its handler waits for something outside of steps for longer than %g s while the rest of it "
                "waits; it is put to rest, and does that again later: put it into a step",
                self._run_pass.claim.run_id,
                seconds,
            )
        self._rest()

    def _look_again(self, seconds: float) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(seconds, self._look) if seconds else loop.call_soon(self._look)

    def _rest(self) -> None:
        """Raises Suspend where the handler waits; the tasks that it has made are cancelled when it is gone."""
        if self._refuses_deadlines():
            return
        self.suspended = True
        self.unwind(Suspend())

    def unwind(self, signal: EngineSignal) -> None:
        """Raises the signal where the handler waits: an async one in its own task, a plain one in all its threads."""
        run_pass = self._run_pass
        if run_pass.task is not None and run_pass.handler.is_async:
            told = self._unwind(run_pass.task, signal)
            # At once, and not when the handler is gone: its `finally` may wait for one of them.
            run_pass.branches.cancel(told)
            return
        for future in self._blocked:
            _raise_in(future, signal)

    def _unwind(self, task: asyncio.Task[Any], signal: EngineSignal) -> set[asyncio.Task[Any]]:
        """In what this very task waits for, not in the tasks of a `gather` or a TaskGroup that it waits for.

        There it would be a value of `gather(return_exceptions=True)`, or a part of an exception group.
        """
        mine = [future for future, branch in self._blocked.items() if branch.task is task]
        future = mine[0] if mine else awaited_by(task)
        if isinstance(future, asyncio.Task):
            return {task} | self._unwind(future, signal)
        if future is not None:
            _raise_in(future, signal)
        return {task}

    def _refuses_deadlines(self) -> bool:
        """`asyncio.timeout` counts on this process's clock, in this pass: around a wait it would be forgotten."""
        run_pass = self._run_pass
        timed = [branch for branch in run_pass.branches.live if has_deadline(branch.task)]
        for future, branch in self._blocked.items():
            if not future.done() and any(each is branch or each in branch.ancestors() for each in timed):
                # Not as an error of the wait, which the handler could catch: in a replay the wait may have ended.
                refused = PermanentError(
                    "asyncio.timeout or asyncio.wait_for around a wait does not last: the run is put to rest "
                    "meanwhile",
                    hint="use ctx.wait_for(..., timeout=...) or ctx.first(..., ctx.sleep(...))",
                )
                _raise_in(future, run_pass.lease.halt(refused))
                return True
        return False

    def yielding(self) -> tuple[Suspended, tuple[StepRecord, ...]]:
        """All waits of this pass as one: the earliest time, every signal, what to show to people."""
        waits = list(self._waits.values())
        times = [wait.until for wait in waits if wait.until is not None]
        children = {wait.child for wait in waits if wait.child is not None}
        # The last of its children to end wakes the run, unless it does not wait for all of those that have not ended.
        is_any = any(wait.is_any for wait in waits) or bool(self._run_pass.open_children - children)
        any_of = tuple(sorted(children)) if is_any else ()
        status = RunStatus.RUNNING if all(wait.retry for wait in waits) else RunStatus.PAUSED
        return (
            Suspended(
                status,
                run_at=min(times) if times else None,
                # With no time to wait for, look again now and then all the same.
                delay=self._run_pass.config.pause_check_interval_seconds,
                # By the first words a child's end knows that it need not be the last one: see wake_parents.
                waiting_for=(ANY_OF if any_of else "") + ", ".join(wait.label for wait in waits),
                signals=tuple(wait.signal for wait in waits if wait.signal is not None),
                children=any(wait.child is not None for wait in waits),
                any_of=any_of,
                answerable=tuple(each for each in self._waits if each in self._run_pass.claim.steps),
            ),
            # A step that is retried later was recorded when it failed.
            tuple(wait.step for wait in waits if not wait.retry),
        )

    def close(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = None
        self._waits.clear()


def _raise_in(future: asyncio.Future[Any], signal: EngineSignal) -> None:
    if not future.done():
        future.set_exception(signal)
