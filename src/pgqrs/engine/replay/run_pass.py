"""One pass over a handler: what was recorded, what is in flight, what it waits for; shared by both contexts."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import CoroutineType
from typing import Any, TypeVar

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.runs import claims
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.history import Emission
from pgqrs.db.runs.records import Ended, RunWrite, StepRecord, Suspended
from pgqrs.db.tables.runs import RecordedStep, RunRow
from pgqrs.engine.batching import Batcher
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.engine.heartbeat import HeldLease
from pgqrs.engine.instrumentation import hooks
from pgqrs.engine.recorded_errors import Program, raised_again, record_of
from pgqrs.engine.replay.arrivals import Arrivals, told
from pgqrs.engine.replay.branches import (
    Branch,
    BranchPlace,
    BranchTask,
    current_body,
    current_branch,
    handled_here,
    is_left_generator,
    outside,
)
from pgqrs.engine.replay.failures import Compensations, FailedStep
from pgqrs.engine.replay.places import NOTHING_RECORDED, Places
from pgqrs.engine.replay.suspension import Resting
from pgqrs.engine.replay.unwinding import Halt, Suspend
from pgqrs.engine.runs.committer import Committer
from pgqrs.errors import (
    ConnectionFailed,
    InvalidTransition,
    LeaseLost,
    NonDeterminism,
    NotAllowedInStep,
    PermanentError,
    PgqrsError,
)
from pgqrs.text.shell import command
from pgqrs.types import StepStatus

T = TypeVar("T")

log = logging.getLogger("pgqrs.run")

# Between two attempts to write something: each has asked the database for `retry_seconds` already.
_AGAIN_SECONDS = 0.1
# What a replay gives to the handler.
_FINAL = frozenset((StepStatus.SUCCESS, StepStatus.ERROR))
# How long what was cancelled may take to end; then the run is given up without it.
ABANDON_SECONDS = 5.0


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


class RunPass:
    """The state of one pass. Methods are called on the event loop only."""

    # One is made for each pass: beyond 30 attributes Python gives every object a dictionary of its own.
    __slots__ = (
        "__weakref__",
        "_arrivals",
        "_bodies",
        "_committer",
        "_fence",
        "_giving_up",
        "_in_flight",
        "_is_closed",
        "_landed",
        "_leased",
        "_live",
        "_loop",
        "_number_of",
        "_numbers",
        "_stirring",
        "children",
        "claim",
        "compensations",
        "config",
        "db",
        "failed",
        "halted",
        "handing_back",
        "handler",
        "held",
        "is_done",
        "meter",
        "on_stuck",
        "open_children",
        "places",
        "program",
        "resting",
        "root",
        "seconds",
        "task",
        "tracer",
        "unawaited",
    )

    def __init__(
        self, claim: Claim, handler: Handler, *, db: Driver, config: Config, committer: Committer, held: HeldLease
    ) -> None:
        self.claim = claim
        self._fence = claim.fence
        self.handler = handler
        self.program = Program.of(handler.function)
        self.db = db
        self.config = config
        # Why the pass is over, when the handler was not asked.
        self.halted: PgqrsError | None = None
        # True when the worker gives its runs back: then a cancellation is the worker's.
        self.handing_back = False
        # True when the handler has returned or raised: what is left is the engine's.
        self.is_done = False
        self.failed: list[FailedStep] = []
        self.compensations = Compensations(around=handled_here())
        self._committer = committer
        # Asked before every step and every write: has the heartbeat renewed the lease in time?
        self.held = held
        self.places = Places(claim.steps) if claim.steps else NOTHING_RECORDED
        # Steps and waits that were called and not awaited yet.
        self.unawaited: dict[str, Coroutine[Any, Any, Any]] = {}
        self._in_flight = 0
        self._bodies: set[asyncio.Task[Any]] = set()
        self._landed: asyncio.Event | None = None
        self._live: dict[Branch, None] = {}
        # Those that do not wait for the engine.
        self._stirring: dict[Branch, None] = {}
        # The order in which results reach the handler; which numbers steps of this pass have in it.
        self._numbers = itertools.count(1 + max((s.sequence or 0 for s in claim.steps.values()), default=0))
        self._number_of: dict[str, int] = {}
        self._arrivals: Arrivals | None = None
        self._is_closed = False
        self._leased = held.since
        self._loop = committer.loop
        # Those of its children whose end is not recorded.
        self.open_children: set[int] = set()
        # How its children ended, asked for many at once.
        self.children: Batcher[int, RunRow | None] | None = None
        self.meter, self.tracer = hooks.meter, hooks.tracer
        # The task that executes it.
        self.task: asyncio.Task[Any] | None = None
        # Called with that task when it does not end although it was cancelled.
        self.on_stuck: Callable[[asyncio.Task[Any]], None] | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        # For measuring how long something takes: seconds since no particular time.
        self.seconds = time.monotonic if db.clock.now() is None else self._clock_seconds
        self.resting = Resting(self)
        self.root = Branch("", self._live, None, self._branches_changed, self._stirring)

    # -- identity ----------------------------------------------------------------------------------------

    def branch(self) -> Branch:
        return current_branch.get() or self.root

    def place(self, name: str, *, does: bool = False) -> BranchPlace:
        """The next step of that name in the branch that asks; parks the run when another one is recorded there.

        `does` is True for what has effects: neither for waits, nor for asking what time it is.
        """
        self.check_usable()
        if is_left_generator.get():
            raise self.halt(
                PermanentError(
                    f"{name!r} was called by an async generator that the workflow left before its end, and Python "
                    "closes it at no certain time: write `async with contextlib.aclosing(...)` around it"
                )
            )
        if current_body.get() is not None:
            self.refuse_in_body(name.partition(":")[0])
        branch = current_branch.get()
        if branch is not None and branch.is_unordered:
            raise self.halt(
                PermanentError(
                    f"{name!r} was called in a task that asyncio.as_completed made in no certain order: give "
                    "as_completed a list in the place of a set"
                )
            )
        place = self._unordered(name) if branch is None else branch.place(name)
        other = self.places.ask(place, branch) if self.claim.steps else None
        if other is not None:
            raise self.diverged(f"asks for step {place.step_id!r} where {other.step_id!r} is recorded")
        if does:
            self.compensations.note(place.step_id)
        return place

    def _unordered(self, name: str) -> BranchPlace:
        """In a thread that a plain handler started by itself: what it asks for has a name, and no order."""
        if name in self.root.counts:
            raise self.halt(
                PermanentError(
                    f"{name!r} was called again in a thread of the workflow's own, and threads come in no order: "
                    "give each step a name of its own, or use ctx.gather"
                )
            )
        return BranchPlace(self.root.place_unordered(name), -1)

    def refuse_in_body(self, verb: str) -> None:
        """Raises NotAllowedInStep in the body of a step."""
        body = current_body.get()
        if body is not None:
            raise NotAllowedInStep(
                f"{verb!r} was called inside the body of step {body[0].step_id!r}, and a step is recorded as a whole "
                "when it ends; call it in the workflow itself, before or after the step"
            )

    def recorded(self, place: BranchPlace) -> RecordedStep | None:
        self.unawaited.pop(place.step_id, None)
        return self.claim.steps.get(place.step_id)

    async def leave_behind(self) -> None:
        """Before anything that is not recorded is done or waited for: see `Places.leave_behind`."""
        if not self.claim.steps:
            return
        if self.has_branches:
            # A branch that a failing sibling cancelled in an earlier pass must be cancelled again before it gets to
            # do more than it did then.
            await self.arrivals.caught_up()
            self.check_usable()
        branch = current_branch.get()
        left = [] if branch is None else self.places.leave_behind(branch)
        if left:
            # Apart, as every verb: a branch that is cancelled meanwhile hears of it at once.
            self.begin()
            losing = self.ask(lambda _again: claims.lose_places(self.db, self._fence, left))
            body = self.begun(outside(losing))
            await told(self.arrivals, body, lambda: None)
            body.result()

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
        if self.unawaited and len(self._live) > 1:
            # It may have been given to a task that has not had its first turn.
            await asyncio.sleep(0)
        forgotten = [step_id for step_id, each in self.unawaited.items() if _was_never_begun(each)]
        self.unawaited.clear()
        if forgotten:
            names = ", ".join(map(repr, forgotten))
            raise PermanentError(f"{names} was called and not awaited, so it never ran; put `await` before the call")

    # -- the order of results ----------------------------------------------------------------------------

    @property
    def arrivals(self) -> Arrivals:
        if self._arrivals is None:
            self._arrivals = Arrivals(self._stirring, self._loop, self.resting.look)
        return self._arrivals

    @property
    def has_arrivals(self) -> bool:
        """True while a result waits to be given to the handler."""
        return bool(self._arrivals)

    def number(self, step_id: str) -> int:
        """The number of a result that is about to be recorded; `is_numbered` is told when it is. From any thread."""
        number = next(self._numbers)
        if self.has_branches:
            self.arrivals.numbered(number, instead_of=self._number_of.get(step_id))
            self._number_of[step_id] = number
        return number

    def is_numbered(self, step_id: str) -> None:
        """The record is written, or will not be."""
        if self._arrivals is not None and (number := self._number_of.get(step_id)) is not None:
            self._arrivals.written(number)

    async def turn(self, *step_ids: str) -> None:
        """Wait until it is the turn of these results, which the handler gets together."""
        if not self.has_branches:
            return
        numbers = [number for each in step_ids if (number := self._sequence(each)) is not None]
        if numbers:
            await self.arrivals.turn(max(numbers))

    def _sequence(self, step_id: str) -> int | None:
        recorded = self.claim.steps.get(step_id)
        return self._number_of.get(step_id) or (None if recorded is None else recorded.sequence)

    async def number_late(self, place: BranchPlace) -> None:
        """A person has answered it between two passes: the handler gets that after all that it got in the first."""
        branch = current_branch.get()
        recorded = self.claim.steps[place.step_id]
        is_new = recorded.status is StepStatus.SUCCESS and recorded.sequence is None
        if not self.has_branches or not is_new or branch is None or self.places.has_passed(branch):
            # Recorded before results had numbers, an earlier pass has got it.
            return
        await self.leave_behind()
        number = self.number(place.step_id)
        try:
            await self.ask(lambda _again: outside(claims.number_step(self.db, self._fence, place.step_id, number)))
        finally:
            self.is_numbered(place.step_id)

    def in_turn(self, body: asyncio.Task[Any], step_id: str) -> asyncio.Future[None]:
        """Done when it is the turn of what this body of a step has recorded; see `arrivals.told`."""
        return told(self.arrivals, body, lambda: self._number_of.get(step_id))

    def _branches_changed(self) -> None:
        if self._arrivals is not None:
            self._arrivals.move()
        self.resting.look()

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
        return self.db.clock.now() or self.claim.now + timedelta(seconds=time.monotonic() - self._leased)

    # -- writing -----------------------------------------------------------------------------------------

    async def record(self, step: StepRecord, emissions: Sequence[Emission] = ()) -> None:
        """Returns when it is durable; what is emitted goes into the outbox with it. Halt when it cannot be."""
        self.check_alive()
        if step.sequence is None and step.status in _FINAL:
            step = step._replace(sequence=self.number(step.step_id))
        write = RunWrite(self._fence, (step,), None, tuple(emissions) if emissions else (), self.handler.name)
        try:
            await self._committer.write(write)
        except Exception as error:  # noqa: BLE001 - none of it is the handler's
            await self.insisted(error, lambda: self._committer.write(write._replace(again=True)))
        finally:
            if self._arrivals is not None:
                self.is_numbered(step.step_id)

    async def settle(self, end: Ended | Suspended, steps: tuple[StepRecord, ...]) -> None:
        """Records how the pass ended. LeaseLost when the run is not ours any more."""
        has_parent = self.claim.parent_run_id is not None
        write = RunWrite(self._fence, steps, end, workflow=self.handler.name, has_parent=has_parent)
        try:
            await self._committer.write(write)
        except ConnectionFailed as error:
            try:
                await self.insisted(error, lambda: self._committer.write(write._replace(again=True)))
            except Halt as halt:
                raise halt.error from None

    async def ask(self, call: Callable[[bool], Awaitable[T]], *, answers: tuple[type[Exception], ...] = ()) -> T:
        """A store call of the pass; `call(again)` repeats it after an outage. Halt when there is no answer.

        Of its errors only the `answers` are raised.
        """
        try:
            return await call(False)  # noqa: FBT003 - the first time
        except answers:
            raise
        except Exception as error:  # noqa: BLE001 - none of it is the handler's
            return await self.insisted(error, lambda: call(True), answers=answers)  # noqa: FBT003 - perhaps done

    async def insisted(
        self, error: Exception, again: Callable[[], Awaitable[T]], *, answers: tuple[type[Exception], ...] = ()
    ) -> T:
        """What could not be written is written again until the lease ends; the handler does not hear of it."""
        while True:
            if not isinstance(error, ConnectionFailed):
                raise self.halt(error if isinstance(error, PgqrsError) else _unexpected(error))
            if self.halted is not None or self.handing_back or not self.held.is_valid():
                log.warning("run %d: the lease ended before this could be recorded: %s", self.claim.run_id, error)
                raise self.lose()
            await asyncio.sleep(_AGAIN_SECONDS)
            try:
                return await again()
            except answers:
                raise
            except Exception as next_error:  # noqa: BLE001 - as above
                error = next_error

    async def fail(
        self, record: StepRecord, error: BaseException, *, is_final: bool = False, branch: Branch | None = None
    ) -> BaseException:
        """Records that a step failed; gives the error that the handler gets, now and in every replay."""
        text = self.error_text(error)
        number = self.number(record.step_id)
        record = record._replace(status=StepStatus.ERROR, output=None, error=text, sequence=number)
        await self.record(record)
        return self.failure_of(record, is_final=is_final, branch=branch).with_traceback(error.__traceback__)

    def failure_of(
        self, record: StepRecord, *, is_final: bool = False, branch: Branch | None = None
    ) -> BaseException:
        """The recorded error of a step, as an object; remembered in case it leaves the handler."""
        error = raised_again(record.error or "{}", program=self.program, step_id=record.step_id)
        self.failed.append(FailedStep(record, error, branch or current_branch.get(), is_final))
        return error

    def raised(self, error: BaseException) -> BaseException:
        """The handler gets this error of a step now."""
        for step in self.failed:
            if step.error is error:
                step.is_raised = True
        return error

    def failed_together(self, errors: Sequence[BaseException]) -> None:
        """One of these errors is about to be raised in the place of all of them."""
        given = {id(error) for error in errors}
        for step in self.failed:
            if id(step.error) in given:
                step.beside = errors

    def error_text(self, error: BaseException) -> str:
        return record_of(error, program=self.program)

    # -- is it still ours --------------------------------------------------------------------------------

    def halt(self, error: PgqrsError) -> Halt:
        """The pass is over; the first reason stays. Raise what this gives."""
        if self.halted is None:
            self.halted = error
            # The branch that found out unwinds by itself; the handler may wait for another.
            self._loop.call_soon(self._tell_handler, current_branch.get(), tuple(self._live))
        return Halt(self.halted)

    def _tell_handler(self, knows: Branch | None, then_live: Sequence[Branch]) -> None:
        if self.is_done or self.task is None or self.halted is None:
            return
        if not self.handler.is_async:
            self.resting.unwind(Halt(self.halted))
            return
        if knows is not self.root:
            self.task.cancel()
        # Not those that a `finally` has begun since: they are part of the way out.
        self.cancel_branches({branch.task for branch in self._live if branch not in then_live})

    def cancel_branches(self, but: Container[object] = ()) -> list[asyncio.Future[Any]]:
        """The handler's tasks, but for its own."""
        tasks = [
            branch.task
            for branch in self._live
            if branch.task is not None and branch is not self.root and branch.task not in but
        ]
        for task in tasks:
            task.cancel()
        return tasks

    def diverged(self, what: str) -> Halt:
        """The code and the record do not fit: the run is parked, and the handler's `except` does not hear of it."""
        run_id = self.claim.run_id
        return self.halt(
            NonDeterminism(
                f"run {run_id} {what}: its code has changed since, or does not do the same in every pass "
                "(time, chance, sets, globals, the order in which steps end). If it has changed, deploy the code "
                f"that the run began with, then `{command('run resume', run_id)}`. If not, find the cause with "
                f"`pgqrs lint` or pgqrs.testing.assert_deterministic, fix it, then `{command('run reset', run_id)}`"
            )
        )

    def lose(self) -> Halt:
        """A write found that the lease is not ours any more."""
        return self.halt(self._lease_lost())

    def _lease_lost(self) -> LeaseLost:
        return LeaseLost(f"run {self.claim.run_id} was leased again or cancelled; nothing more is done here")

    def check_usable(self) -> None:
        """Before anything new is asked for."""
        if self.halted is not None:
            raise Halt(self.halted)
        if self._is_closed:
            raise InvalidTransition(
                f"run {self.claim.run_id} has ended this pass, and its context cannot be used any more; "
                "await the tasks and join the threads that use it before the workflow returns"
            )
        if self.resting.suspended:
            raise Suspend
        if self.handing_back:
            # A `finally` on the way out begins nothing new: the next worker continues where the handler was.
            raise Halt(self._lease_lost())

    def check_alive(self) -> None:
        if self.halted is not None:
            raise Halt(self.halted)
        if not self.held.is_valid():
            raise self.lose()

    @property
    def is_lost(self) -> bool:
        return isinstance(self.halted, LeaseLost)

    @property
    def is_unwinding(self) -> bool:
        """True when a cancellation in the handler is the engine's."""
        return self.halted is not None or self.resting.suspended or self.handing_back

    @property
    def is_alone(self) -> bool:
        """True when nothing but its own end can end a step of the handler: it has one branch, and no thread."""
        return len(self._live) == 1 and self.handler.is_async

    @property
    def has_branches(self) -> bool:
        """True when results have an order that the handler sees: threads come in none."""
        return len(self._live) > 1 and self.handler.is_async

    # -- in flight ---------------------------------------------------------------------------------------

    @property
    def live(self) -> dict[Branch, None]:
        return self._live

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def begin(self) -> None:
        self.check_alive()
        self._in_flight += 1

    def begun(self, body: asyncio.Task[Any]) -> asyncio.Task[Any]:
        """The body of a step: in flight until it is done, even when it is ended before it began."""
        self._bodies.add(body)
        body.add_done_callback(self._body_done)
        return body

    def _body_done(self, body: asyncio.Task[Any]) -> None:
        self._bodies.discard(body)
        # Its caller may be gone: then this is the only look at its error.
        if not body.cancelled():
            body.exception()
        self.finish()

    def finish(self) -> None:
        self._in_flight -= 1
        if not self._in_flight and self._landed is not None:
            self._landed.set()
        self.resting.look()

    def abandon(self) -> None:
        """The run is another worker's, or about to be: nothing more begins here, and what is in flight is ended."""
        self.halted = self.halted or self._lease_lost()
        if not self.handler.is_async:
            # An async handler is cancelled; a thread that waits here would wait forever.
            self.resting.unwind(Halt(self.halted))
        for body in self._bodies:
            body.cancel()

    def on_lost(self) -> None:
        """From the heartbeat's thread: the lease is gone."""
        log.warning("run %d: lease lost", self.claim.run_id)
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        # An outcome on its way to the database hears there whether the lease still held.
        if not self.held.settling and self.task is not None:
            self.abandon()
            self.task.cancel()
            if self.on_stuck is not None:
                self._giving_up = self._loop.call_later(ABANDON_SECONDS, self.on_stuck, self.task)

    async def wind_up(self) -> None:
        """The handler is done: what is still in flight finishes and is recorded, then its other tasks are ended."""
        while self._in_flight:
            if self.halted is not None:
                for body in self._bodies:
                    body.cancel()
            self._landed = asyncio.Event()
            if not await _in_time(self._landed.wait(), ABANDON_SECONDS if self.is_unwinding else None):
                log.warning("run %d: a step does not end although it was cancelled", self.claim.run_id)
                break
        tasks = self.cancel_branches()
        if tasks and not await _in_time(asyncio.wait(tasks), ABANDON_SECONDS):
            log.warning("run %d: a task of the handler does not end although it was cancelled", self.claim.run_id)

    @property
    def is_quiet(self) -> bool:
        """True when nothing is in flight, and no task of the handler is left."""
        return not self._in_flight and len(self._live) <= 1

    def close(self) -> None:
        """Lets go of what refers back to it, so that it is gone at once and not when the garbage is collected."""
        self._is_closed = True
        self.held.lost = self.task = self.children = self.on_stuck = None
        if self._giving_up is not None:
            self._giving_up.cancel()
        self.resting.close()
        if self._arrivals is not None:
            self._arrivals.close()
        self.failed.clear()
        self.compensations.clear()
        self._live.clear()
        self._stirring.clear()
        self.root.close()

    @contextmanager
    def uninterrupted(self, place: BranchPlace) -> Iterator[None]:
        """Refuses a deadline of asyncio's around something that is being written: a replay could not repeat it."""
        try:
            yield
        except asyncio.CancelledError:
            if not self.was_interrupted():
                raise
        else:
            return
        raise interrupted(place)

    def was_interrupted(self) -> bool:
        """True when the handler itself, by a deadline of asyncio's, has cancelled what it was waiting for."""
        task = asyncio.current_task()
        if self.is_unwinding or (isinstance(task, BranchTask) and not task.timed_out and not self.is_alone):
            # By another branch: a TaskGroup cancels the handler, too, when one of its tasks has failed.
            return False
        return task is not None and task.cancelling() > 0

    @contextmanager
    def watched(self, place: BranchPlace) -> Iterator[None]:
        """Around a step that has a transaction of its own: the committer tells of the others."""
        began = self.seconds()
        meter, tracer, workflow = self.meter, self.tracer, self.handler.name
        try:
            with nullcontext() if tracer is None else tracer.step(workflow, self.claim.run_id, place, 1):
                yield
        except Exception:
            if meter is not None:
                meter.stepped(workflow, StepStatus.ERROR, self.seconds() - began)
            raise
        if meter is not None:
            meter.stepped(workflow, StepStatus.SUCCESS, self.seconds() - began)


def interrupted(place: BranchPlace) -> PermanentError:
    """The error of a handler that puts `asyncio.timeout` around a step."""
    return PermanentError(
        f"the workflow interrupted its step {place.step_id!r} (asyncio.timeout around it?), which a replay could not "
        "repeat; use ctx.step(..., timeout=...)"
    )


def _unexpected(error: Exception) -> PgqrsError:
    again = PgqrsError(f"{type(error).__name__}: {error}")
    again.__cause__ = error
    return again


def _was_never_begun(coroutine: Coroutine[Any, Any, Any]) -> bool:
    """False when a task got it, and was cancelled before its first turn."""
    if isinstance(coroutine, CoroutineType):
        return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    return not getattr(coroutine, "is_begun", True)


async def _in_time(work: Awaitable[Any], seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
