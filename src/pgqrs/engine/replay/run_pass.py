"""One pass over a handler, shared by both contexts: where its parts meet, and which step the handler asks for.

lease       may the pass continue                           failures    which steps made the handler fail
branches    the tasks or threads of the handler             recorder    what is written of it
order       in which order the handler gets its results     in_flight   what has begun and is not recorded
places      what is recorded of earlier passes              resting     whether all of the handler waits
unawaited   what was called and not awaited                 shutdown    how what is left of it comes to its end
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.runs import claims
from pgqrs.db.runs.claims import Claim
from pgqrs.db.tables.runs import RecordedStep, RunRow
from pgqrs.engine.batching import Batcher
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.engine.heartbeat import HeldLease
from pgqrs.engine.instrumentation import Meter, Tracer, hooks
from pgqrs.engine.recorded_errors import Program
from pgqrs.engine.replay import interruption, refusals
from pgqrs.engine.replay.arrivals import told
from pgqrs.engine.replay.branch_tasks import BranchTask
from pgqrs.engine.replay.branches import (
    Branch,
    BranchPlace,
    BranchSet,
    current_body,
    current_branch,
    is_left_generator,
)
from pgqrs.engine.replay.failures import Failures
from pgqrs.engine.replay.in_flight import InFlight
from pgqrs.engine.replay.interruption import uninterrupted
from pgqrs.engine.replay.pass_lease import PassLease
from pgqrs.engine.replay.places import NOTHING_RECORDED, Places
from pgqrs.engine.replay.recorder import Recorder
from pgqrs.engine.replay.result_order import ResultOrder
from pgqrs.engine.replay.shutdown import PassShutdown
from pgqrs.engine.replay.stack_room import check_stack_room
from pgqrs.engine.replay.suspension import Resting
from pgqrs.engine.replay.task_factory import outside
from pgqrs.engine.replay.unawaited import UnawaitedCalls
from pgqrs.engine.replay.unwinding import Halt, Suspend
from pgqrs.engine.runs.committer import Committer
from pgqrs.types import StepStatus

# How long what was cancelled may take to end; then the run is given up without it.
ABANDON_SECONDS = 5.0


class RunPass:
    """The state of one pass. Methods are called on the event loop only."""

    # One is made for each pass.
    __slots__ = (
        "__weakref__",
        "_is_closed",
        "_loop",
        "branches",
        "children",
        "claim",
        "config",
        "db",
        "failures",
        "handler",
        "in_flight",
        "is_done",
        "lease",
        "meter",
        "open_children",
        "order",
        "places",
        "recorder",
        "resting",
        "root",
        "seconds",
        "shutdown",
        "task",
        "tracer",
        "unawaited",
    )

    def __init__(
        self, claim: Claim, handler: Handler, *, db: Driver, config: Config, committer: Committer, held: HeldLease
    ) -> None:
        self.claim: Claim = claim
        self.handler: Handler = handler
        self.db: Driver = db
        self.config: Config = config
        self._loop = committer.loop
        self._is_closed = False
        # True when the handler has returned or raised: what is left is the engine's.
        self.is_done: bool = False
        # The task that executes it.
        self.task: asyncio.Task[Any] | None = None
        # Those of its children whose end is not recorded.
        self.open_children: set[int] = set()
        # How its children ended, asked for many at once.
        self.children: Batcher[int, RunRow | None] | None = None
        self.meter: Meter | None = hooks.meter
        self.tracer: Tracer | None = hooks.tracer
        # For measuring how long something takes: seconds since no particular time.
        self.seconds: Callable[[], float] = time.monotonic if db.clock.now() is None else self._clock_seconds
        self.shutdown: PassShutdown = PassShutdown(self, self._loop, patience=ABANDON_SECONDS)
        self.lease: PassLease = PassLease(claim.run_id, held, self.shutdown.on_halt)
        self.branches: BranchSet = BranchSet(self)
        self.root: Branch = self.branches.root
        self.resting: Resting = Resting(self)
        self.places: Places = Places(claim.steps) if claim.steps else NOTHING_RECORDED
        self.unawaited: UnawaitedCalls = UnawaitedCalls()
        self.in_flight: InFlight = InFlight(self.lease, self.resting.look)
        self.order: ResultOrder = ResultOrder(claim.steps, self.branches, self.resting, self._loop)
        self.failures: Failures = Failures(Program.of(handler.function))
        self.recorder: Recorder = Recorder(
            claim,
            handler.name,
            db=db,
            committer=committer,
            lease=self.lease,
            order=self.order,
            failures=self.failures,
        )

    # -- identity ----------------------------------------------------------------------------------------

    def branch(self) -> Branch:
        return current_branch.get() or self.root

    def place(self, name: str, *, does: bool = False) -> BranchPlace:
        """The next step of that name in the branch that asks; parks the run when another one is recorded there.

        `does` is True for what has effects: neither for waits, nor for asking what time it is.
        """
        self.check_usable()
        if is_left_generator.get():
            raise self.lease.halt(refusals.left_generator(name))
        if current_body.get() is not None:
            refusals.refuse_in_body(name.partition(":")[0])
        branch = current_branch.get()
        if branch is not None and branch.is_unordered:
            raise self.lease.halt(refusals.unordered_task(name))
        place = self._unordered(name) if branch is None else branch.place(name)
        other = self.places.ask(place, branch) if self.claim.steps else None
        if other is not None:
            raise self.diverged(f"asks for step {place.step_id!r} where {other.step_id!r} is recorded")
        if does:
            self.failures.compensations.note(place.step_id)
        return place

    def _unordered(self, name: str) -> BranchPlace:
        """In a thread that a plain handler started by itself: what it asks for has a name, and no order."""
        if name in self.root.counts:
            raise self.lease.halt(refusals.unordered_threads(name))
        return BranchPlace(self.root.place_unordered(name), -1)

    # -- the record --------------------------------------------------------------------------------------

    def recorded(self, place: BranchPlace) -> RecordedStep | None:
        """Where every verb begins that is awaited."""
        check_stack_room()
        self.unawaited.begun(place.step_id)
        return self.claim.steps.get(place.step_id)

    async def leave_behind(self) -> None:
        """Before anything that is not recorded is done or waited for: see `Places.leave_behind`."""
        if not self.claim.steps:
            return
        if self.branches.has_several:
            # A branch that a failing sibling cancelled in an earlier pass must be cancelled again before it gets to
            # do more than it did then.
            with uninterrupted(self, "replay"):
                await self.order.arrivals.caught_up()
            self.check_usable()
        branch = current_branch.get()
        left = [] if branch is None else self.places.leave_behind(branch)
        if left:
            # Apart, as every verb: a branch that is cancelled meanwhile hears of it at once.
            self.in_flight.begin()
            losing = self.recorder.ask_under_lease(lambda: claims.lose_places(self.db, self.claim.fence, left))
            body = self.in_flight.begun(outside(losing))
            with uninterrupted(self, "replay"):
                await told(self.order.arrivals, body, lambda: None)
            body.result()

    async def number_late(self, place: BranchPlace) -> None:
        """A person has answered it between two passes: the handler gets that after all that it got in the first."""
        branch = current_branch.get()
        recorded = self.claim.steps[place.step_id]
        is_new = recorded.status is StepStatus.SUCCESS and recorded.sequence is None
        if not self.branches.has_several or not is_new or branch is None or self.places.has_passed(branch):
            # Recorded before results had numbers, an earlier pass has got it.
            return
        await self.leave_behind()
        number = self.order.number(place.step_id)
        try:
            with uninterrupted(self, step_id := place.step_id):
                await self.recorder.ask_under_lease(
                    lambda: outside(claims.number_step(self.db, self.claim.fence, step_id, number))
                )
        finally:
            self.order.is_numbered(place.step_id)

    def is_replaying(self) -> bool:
        """True while the branch that asks is at a place that an earlier pass went beyond.

        It did if any step of that branch from here on is recorded, in whatever state. Outside of the handler's
        branches, which is in the body of a step and in threads that a plain handler started, nothing is a replay.
        """
        branch = current_branch.get()
        return branch is not None and self.places.has_passed(branch)

    def check_all_were_asked_for(self) -> None:
        """At the end of the handler: a completed step of its main branch that it did not ask for was removed."""
        missing = self.places.missing()
        if missing is not None:
            raise self.diverged(f"ended without step {missing.step_id!r}, which is recorded")

    async def check_all_were_awaited(self) -> None:
        """At the end of the handler: a step that was called and not awaited was never run."""
        await self.unawaited.check(has_tasks=len(self.branches.live) > 1)

    def diverged(self, what: str) -> Halt:
        """The code and the record do not fit: the run is parked, and the handler's `except` does not hear of it."""
        return self.lease.halt(refusals.diverged(self.claim.run_id, what))

    # -- its branches ------------------------------------------------------------------------------------

    def branches_changed(self) -> None:
        """One of them has ended."""
        self.order.branches_changed()
        self.resting.look()

    def outwaited(self) -> None:
        """The time of an `asyncio.wait` for one of them is up."""
        interruption.outwaited(self)

    def timed_out(self, branch: Branch) -> None:
        """A deadline is about to cancel this one."""
        interruption.timed_out(self, branch)

    def _on_cancel(self) -> None:
        """Its task is about to be cancelled. When neither the handler nor the engine does it, the program ends.

        `asyncio.run` cancels every task that is left, as programs do that end by themselves. The handler must not get
        that for an error of its own: its run is handed back.
        """
        branch = current_branch.get()
        is_own = current_body.get() is not None or (branch is not None and branch.is_among(self.branches))
        if not is_own and not self.is_unwinding and not self.is_done:
            self.lease.hand_back()

    # -- threads -----------------------------------------------------------------------------------------

    def is_on_its_loop(self) -> bool:
        """False in threads, which are those of plain steps and handlers, and in event loops that these run."""
        return asyncio._get_running_loop() is self._loop  # noqa: SLF001 - the other one raises where there is none

    def call_soon(self, function: Callable[[], None]) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(function)

    # -- time --------------------------------------------------------------------------------------------

    def _clock_seconds(self) -> float:
        now = self.db.clock.now()
        return time.monotonic() if now is None else now.timestamp()

    def now(self) -> datetime:
        """The database's time: what it said at the lease, plus what has passed since; or the hand-set clock's."""
        since = self.lease.held.since
        return self.db.clock.now() or self.claim.now + timedelta(seconds=time.monotonic() - since)

    # -- may it continue ---------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Before anything new is asked for."""
        if self.lease.halted is not None:
            raise Halt(self.lease.halted)
        if self._is_closed:
            raise refusals.ended_pass(self.claim.run_id)
        if self.resting.suspended:
            raise Suspend
        if self.lease.handing_back:
            # A `finally` on the way out begins nothing new: the next worker continues where the handler was.
            raise self.lease.refused()

    @property
    def is_unwinding(self) -> bool:
        """True when a cancellation in the handler is the engine's."""
        return self.lease.halted is not None or self.resting.suspended or self.lease.handing_back

    def begin(self, task: asyncio.Task[Any] | None) -> None:
        """The handler is executed by this task from now on."""
        self.task = task
        if self.handler.is_async:
            self.root.run_in(task)
        if isinstance(task, BranchTask):
            task.on_cancel = self._on_cancel

    def close(self) -> None:
        """Lets go of what refers back to it, so that it is gone at once and not when the garbage is collected."""
        self._is_closed = True
        if isinstance(self.task, BranchTask):
            self.task.on_cancel = None
        self.task = self.children = None
        self.seconds = time.monotonic
        self.lease.close()
        self.shutdown.close()
        self.resting.close()
        self.order.close()
        self.failures.close()
        self.branches.close()
