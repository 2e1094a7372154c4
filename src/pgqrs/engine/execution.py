"""One pass over a handler: what was recorded, what is in flight, what it waits for; shared by both contexts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pgqrs.config import Config
from pgqrs.db.claims import Claim
from pgqrs.db.driver import Driver
from pgqrs.db.history import Emission
from pgqrs.db.tables.runs import RecordedStep, RunRow
from pgqrs.db.writes import StepRecord, Write, Yielding
from pgqrs.engine.branches import Branch, Place, branch_of, current_branch
from pgqrs.engine.committer import Committer
from pgqrs.engine.gathering import Gatherer
from pgqrs.engine.heartbeat import Held
from pgqrs.engine.observing import watching
from pgqrs.engine.registry import Handler
from pgqrs.errors import InvalidTransition, LeaseLost, NonDeterminism, RunCancelled
from pgqrs.types import RunStatus, StepStatus

log = logging.getLogger("pgqrs.run")

# A task of the handler that has not used the context yet may be about to: it gets this long before the run is put to
# rest without it. Longer waits belong into steps.
_GRACE_SECONDS = 1.0


class Suspend(BaseException):
    """The run waits, perhaps for days: unwind, and give up the lease. No `except Exception` stops it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a branch waits for. `retry` tells a step's own backoff from waiting for the world outside."""

    label: str
    step: StepRecord
    until: datetime | None = None
    signal: str | None = None
    children: bool = False
    retry: bool = False


@dataclass(slots=True)
class FailedStep:
    """A step that failed in this pass, and the error that its caller saw."""

    record: StepRecord
    error: BaseException


class Execution:
    """The state of one pass. Methods are called on the event loop only."""

    def __init__(
        self, claim: Claim, handler: Handler, *, db: Driver, config: Config, committer: Committer, held: Held
    ) -> None:
        self.claim = claim
        self._fence = claim.fence
        self.handler = handler
        self.db = db
        self.config = config
        self.suspended = False
        self.cancelled = False
        self.lost = False
        self.failed: list[FailedStep] = []
        self._committer = committer
        # Asked before every step and every write: has the heartbeat renewed the lease in time?
        self._held = held
        self._requested: set[str] = set()
        self._by_place = {(branch_of(s.step_id), s.ordinal): s for s in claim.steps.values() if s.ordinal >= 0}
        # By branch: the ordinal of the last step on record. Made when somebody asks.
        self._furthest: dict[str, int] | None = None
        self._waits: dict[str, Wait] = {}
        self._blocked: list[asyncio.Future[None]] = []
        self._in_flight = 0
        self._is_closed = False
        self._bodies: set[asyncio.Task[Any]] = set()
        self._landed: asyncio.Event | None = None
        self._live: dict[Branch, None] = {}
        self._leased = held.since
        self._loop = committer.loop
        # How its children ended, asked for many at once.
        self.children: Gatherer[int, RunRow | None] | None = None
        self.meter, self.tracer = watching.meter, watching.tracer
        # The task that executes it.
        self.task: asyncio.Task[Any] | None = None
        # For measuring how long something takes: seconds since no particular time.
        self.seconds = time.monotonic if db.clock.now() is None else self._clock_seconds
        self.root = Branch("", self._live, None, self.settle_down)

    # -- identity ----------------------------------------------------------------------------------------

    def branch(self) -> Branch:
        return current_branch.get() or self.root

    def place(self, name: str) -> Place:
        """The next step of that name in the branch that asks; NonDeterminism when another one is on record there."""
        if self._is_closed:
            raise InvalidTransition(
                f"run {self.claim.run_id} has ended this pass, and its context cannot be used any more; "
                "await the tasks and join the threads that use it before the workflow returns"
            )
        if self.suspended:
            raise Suspend
        branch = current_branch.get()
        if branch is None:
            # A thread that a plain handler started by itself: its steps come in no order, so only their names count.
            step_id = self.root.place_unordered(name)
            self._requested.add(step_id)
            return Place(step_id, -1)
        place = branch.place(name)
        if not self.claim.steps:
            # Nothing is on record that it could differ from.
            return place
        step_id, ordinal = place
        recorded = self._by_place.get((branch.path, ordinal))
        if recorded is not None and recorded.step_id != step_id:
            raise NonDeterminism(
                f"run {self.claim.run_id} asks for step {step_id!r} where {recorded.step_id!r} is on record: the "
                "code has changed since; deploy the old code under this name, or reset the run"
            )
        self._requested.add(step_id)
        return place

    def recorded(self, place: Place) -> RecordedStep | None:
        return self.claim.steps.get(place.step_id)

    def is_replaying(self) -> bool:
        """True while the branch that asks is at a place that an earlier pass went beyond.

        It did if any step of that branch from here on is on record, in whatever state. Outside of the handler's
        branches, which is in the body of a step and in threads that a plain handler started, nothing is a replay.
        """
        branch = current_branch.get()
        if branch is None or not self._by_place:
            return False
        if self._furthest is None:
            self._furthest = {}
            for path, ordinal in self._by_place:
                self._furthest[path] = max(ordinal, self._furthest.get(path, -1))
        return self._furthest.get(branch.path, -1) >= branch.ordinal

    def check_all_were_asked_for(self) -> None:
        """At the end of the handler: a completed step of its main branch that nobody asked for was removed."""
        for step in self.claim.steps.values():
            done = step.status is StepStatus.SUCCESS and not branch_of(step.step_id)
            if done and step.step_id not in self._requested:
                raise NonDeterminism(
                    f"run {self.claim.run_id} ended without step {step.step_id!r}, which is on record: the code has "
                    "changed since; deploy the old code under this name, or reset the run"
                )

    # -- time --------------------------------------------------------------------------------------------

    def _clock_seconds(self) -> float:
        now = self.db.clock.now()
        return time.monotonic() if now is None else now.timestamp()

    def now(self) -> datetime:
        """The database's time: what it said at the lease, plus what has passed since; or the hand-set clock's."""
        return self.db.clock.now() or self.claim.now + timedelta(seconds=time.monotonic() - self._leased)

    # -- writing -----------------------------------------------------------------------------------------

    def write(self, step: StepRecord, emissions: Sequence[Emission] = ()) -> asyncio.Future[None]:
        """Done when it is durable; what is emitted goes into the outbox with it."""
        self.check_alive()
        told = tuple(emissions) if emissions else ()
        return self._committer.write(Write(self._fence, (step,), None, told, self.handler.name))

    async def record(self, step: StepRecord, emissions: Sequence[Emission] = ()) -> None:
        """As `write`, and remembers when it turns out that the lease is lost."""
        try:
            await self.write(step, emissions)
        except LeaseLost:
            self.lost = True
            raise

    def check_alive(self) -> None:
        if self.cancelled:
            raise RunCancelled(self.claim.run_id)
        if self.lost or not self._held.is_valid():
            raise LeaseLost(f"run {self.claim.run_id} was leased again or cancelled; nothing more is done here")

    @property
    def is_alone(self) -> bool:
        """True when nothing but its own end can end a step of the handler: it has one branch, and no thread."""
        return len(self._live) == 1 and self.handler.is_async

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
        # Nobody may be left to ask for it.
        if not body.cancelled():
            body.exception()
        self.finish()

    def abandon(self) -> None:
        """The run is somebody else's, or about to be: nothing more begins here, and what is in flight is ended."""
        self.lost = True
        for body in self._bodies:
            body.cancel()

    def on_lost(self) -> None:
        """From the heartbeat's thread: the lease is gone."""
        log.warning("run %d: lease lost", self.claim.run_id)
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        # An outcome on its way to the database hears there whether the lease still held.
        if not self._held.settling and self.task is not None:
            self.abandon()
            self.task.cancel()

    def close(self) -> None:
        """Lets go of what refers back to it, so that it is gone at once and not when the garbage is collected."""
        self._held.lost = self.task = self.children = None
        self._live.clear()
        self._is_closed = True
        self.root.close()

    def finish(self) -> None:
        self._in_flight -= 1
        if not self._in_flight and self._landed is not None:
            self._landed.set()
        if self._waits:
            self.settle_down()

    async def wind_up(self) -> None:
        """The handler is done: what is still in flight finishes and is recorded, then its other tasks are ended."""
        while self._in_flight:
            if self.lost:
                self.abandon()
            self._landed = asyncio.Event()
            await self._landed.wait()
        if len(self._live) == 1:
            return
        tasks = [branch.task for branch in self._live if branch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def watched(self, place: Place) -> Iterator[None]:
        """Around a step that has a transaction of its own: the committer tells of the others."""
        began = self.seconds()
        meter, tracer, workflow = self.meter, self.tracer, self.handler.name
        try:
            with nullcontext() if tracer is None else tracer.step(workflow, self.claim.run_id, place, 1):
                yield
        except LeaseLost:
            raise
        except Exception:
            if meter is not None:
                meter.stepped(workflow, StepStatus.ERROR, self.seconds() - began)
            raise
        if meter is not None:
            meter.stepped(workflow, StepStatus.SUCCESS, self.seconds() - began)

    # -- waiting -----------------------------------------------------------------------------------------

    async def wait(self, wait: Wait) -> None:
        """Raises Suspend, when every other branch has come to rest too."""
        self.note(wait)
        branch = self.branch()
        branch.engaged = True
        branch.blocked += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._blocked.append(future)
        self.settle_down()
        try:
            await future
        finally:
            branch.blocked -= 1

    def note(self, wait: Wait) -> None:
        self._waits[wait.step.step_id] = wait

    def settle_down(self) -> None:
        """If nothing is in flight and every branch waits, put the run to rest."""
        if self.suspended or not self._waits or self._in_flight:
            return
        parents = {branch.parent for branch in self._live}
        leaves = [branch for branch in self._live if branch not in parents]
        if any(leaf.engaged and not leaf.blocked for leaf in leaves):
            return
        if all(leaf.blocked for leaf in leaves):
            self._rest()
        else:
            asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._rest_if_still_quiet)

    def _rest_if_still_quiet(self) -> None:
        parents = {branch.parent for branch in self._live}
        if not self._in_flight and all(b.blocked or not b.engaged for b in self._live if b not in parents):
            self._rest()

    def _rest(self) -> None:
        self.suspended = True
        for future in self._blocked:
            if not future.done():
                future.set_exception(Suspend())

    def yielding(self) -> tuple[Yielding, tuple[StepRecord, ...]]:
        """All waits of this pass as one: the earliest time, every signal, what to show to people."""
        waits = list(self._waits.values())
        times = [wait.until for wait in waits if wait.until is not None]
        status = RunStatus.RUNNING if all(wait.retry for wait in waits) else RunStatus.PAUSED
        return (
            Yielding(
                status,
                run_at=min(times) if times else None,
                # Nothing to wait for but somebody's word: look again now and then all the same.
                delay=self.config.pause_check_interval_seconds,
                waiting_for=", ".join(wait.label for wait in waits),
                signals=tuple(wait.signal for wait in waits if wait.signal is not None),
                children=any(wait.children for wait in waits),
            ),
            tuple(wait.step for wait in waits),
        )

    def steps_to_try_again(self, error: BaseException) -> tuple[StepRecord, ...]:
        """The failed steps whose error has left the handler: the next attempt runs them anew."""
        chain = _chain(error)
        return tuple(
            s.record._replace(status=StepStatus.PENDING, is_again=True) for s in self.failed if id(s.error) in chain
        )

    def failed_in(self, error: BaseException) -> str | None:
        """The step that an error which has left the handler came from."""
        chain = _chain(error)
        return next((s.record.step_id for s in self.failed if id(s.error) in chain), None)


def _chain(error: BaseException) -> set[int]:
    """The error with its causes and, where TaskGroup has raised it, its parts; by identity."""
    chain: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None or id(link) in chain:
            continue
        chain.add(id(link))
        links += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            links += link.exceptions
    return chain
