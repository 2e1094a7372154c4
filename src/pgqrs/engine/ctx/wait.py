"""Waiting for time, a person or a signal: a waiting run holds nothing, and a replay finds its answer recorded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, get_args, get_origin

from pgqrs.db.runs import claims
from pgqrs.db.runs.claims import TakenSignal
from pgqrs.db.runs.records import StepRecord
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.ctx.recorded_results import failed_before, read, refused_answer
from pgqrs.engine.ctx.steps import apart
from pgqrs.engine.definitions.handlers import misfit
from pgqrs.engine.replay.branches import Branch, BranchPlace, current_branch
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.suspension import Wait
from pgqrs.errors import SerializationError, WaitTimeout
from pgqrs.serialization import decode, encode
from pgqrs.types import Answer as GivenAnswer
from pgqrs.types import StepStatus

_FINAL = (StepStatus.SUCCESS, StepStatus.ERROR)


class WaitAnswer(NamedTuple):
    """What a wait has come to: a value, or the error that is raised in its place."""

    value: Any = None
    error: BaseException | None = None

    def given(self, run_pass: RunPass) -> Any:
        """The value to the handler, or the error."""
        if self.error is not None:
            raise run_pass.failures.raised(self.error)
        return self.value


EndedAt = Callable[[Mapping[str, datetime]], Coroutine[Any, Any, datetime | None]]
# The answer that an earlier pass has recorded.
Replay = Callable[[RecordedStep], Coroutine[Any, Any, WaitAnswer]]
# The answer, recorded now, or what to wait for; for the branch that asks.
Ask = Callable[[Branch | None], Coroutine[Any, Any, WaitAnswer | Wait]]


class Waiter(Coroutine[Any, Any, Any]):
    """What `ctx.sleep`, `wait_for`, `pause` and `child.result` return: to be awaited, or given to `ctx.first`.

    A coroutine, so that `create_task` and `gather` take it; its own class, so that `first` can look without waiting.
    """

    def __init__(
        self,
        run_pass: RunPass,
        place: BranchPlace,
        replay: Replay,
        ask: Ask,
        *,
        signal: str | None = None,
        ended_at: EndedAt | None = None,
    ) -> None:
        self.run_pass = run_pass
        self.place = place
        # The name of the signal that it waits for.
        self.signal = signal
        self._replay = replay
        self._ask = ask
        self._ended_at = ended_at
        self._answer: WaitAnswer | None = None
        self._inner: Coroutine[Any, Any, Any] | None = None
        self.is_begun: bool = False
        run_pass.unawaited.add(place.step_id, self)

    async def replayed(self) -> WaitAnswer | None:
        """The answer, if it is recorded."""
        recorded = self.run_pass.recorded(self.place)
        if self._answer is None and recorded is not None and recorded.status in _FINAL:
            self._answer = await self._replay(recorded)
        return self._answer

    async def look(self, branch: Branch | None) -> WaitAnswer | Wait:
        """The answer, or what to wait for. An answer that was given is given again: it takes no second signal.

        In a task of the engine's own, for the branch that asks.
        """
        looked = await self.replayed() or await self._ask(branch)
        if isinstance(looked, WaitAnswer):
            self._answer = looked
        return looked

    async def ended_at(self, sent: Mapping[str, datetime]) -> datetime | None:
        """Since when it need not be waited for; None while it must be. `sent` says when each unread signal was."""
        return None if self._ended_at is None else await self._ended_at(sent)

    async def _wait(self) -> Any:
        run_pass, step_id = self.run_pass, self.place.step_id
        answer = await self.replayed()
        if answer is not None:
            if run_pass.branches.has_several and step_id in run_pass.claim.steps:
                await run_pass.number_late(self.place)
            await run_pass.order.turn(step_id)
            return answer.given(run_pass)
        await run_pass.leave_behind()
        run_pass.in_flight.begin()
        looked: WaitAnswer | Wait = await apart(run_pass, self.look(current_branch.get()), step_id)
        if isinstance(looked, Wait):
            await run_pass.resting.wait(looked)
        return looked.given(run_pass)

    def _begun(self) -> Coroutine[Any, Any, Any]:
        self.is_begun = True
        if self._inner is None:
            self._inner = self._wait()
        return self._inner

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def close(self) -> None:
        self.is_begun = True
        if self._inner is not None:
            self._inner.close()


def sleep(run_pass: RunPass, place: BranchPlace, length: timedelta) -> Waiter:
    """Until the time that was fixed when this was first asked for."""

    async def ended_at(_sent: Mapping[str, datetime]) -> datetime | None:
        until = _until(run_pass, place, length)
        return None if until is None or until > run_pass.now() else until

    async def replay(_recorded: RecordedStep) -> WaitAnswer:
        return WaitAnswer()

    async def ask(_branch: Branch | None) -> WaitAnswer | Wait:
        until = _until(run_pass, place, length) or run_pass.now()
        if until > run_pass.now():
            record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=encode(until))
            return Wait(f"sleep until {until:%Y-%m-%d %H:%M:%S}", record, until=until)
        await run_pass.recorder.record(
            StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=encode(until))
        )
        return WaitAnswer()

    return Waiter(run_pass, place, replay, ask, ended_at=ended_at)


def _until(run_pass: RunPass, place: BranchPlace, length: timedelta | None) -> datetime | None:
    """When the wait ends: the time that was fixed when it was first asked for, or so long from now."""
    recorded = run_pass.claim.steps.get(place.step_id)
    if recorded is not None and recorded.output and recorded.status not in (StepStatus.SUCCESS, StepStatus.ERROR):
        until: datetime = decode(recorded.output, datetime)
        return until
    return None if length is None else run_pass.now() + length


def pause(run_pass: RunPass, place: BranchPlace, message: str, *, as_type: Any = Any) -> Waiter:
    """Until a person resumes the run; gives the data that the run is resumed with."""
    answered = _TypedAnswer(run_pass, place, "the data to resume with", as_type)

    async def ask(_branch: Branch | None) -> WaitAnswer | Wait:
        return Wait(message, StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED))

    return Waiter(run_pass, place, answered.replayed, ask)


def wait_for(run_pass: RunPass, place: BranchPlace, name: str, *, seconds: float | None, as_type: Any) -> Waiter:
    """The oldest unread signal of that name; WaitTimeout after so many seconds."""
    answered = _TypedAnswer(run_pass, place, f"signal {name!r}", as_type)
    length = None if seconds is None else timedelta(seconds=seconds)

    async def ended_at(sent: Mapping[str, datetime]) -> datetime | None:
        until = _until(run_pass, place, length)
        times = [sent.get(name), None if until is None or until > run_pass.now() else until]
        return min((each for each in times if each is not None), default=None)

    async def ask(branch: Branch | None) -> WaitAnswer | Wait:
        try:
            taken = await _signal(run_pass, place, name)
            if taken is not None:
                return await answered(taken, branch)
        finally:
            # Not before a wrong answer is refused: the results of other branches must not overtake that.
            run_pass.order.is_numbered(place.step_id)
        until = _until(run_pass, place, length)
        if until is not None and until <= run_pass.now():
            record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR)
            late = WaitTimeout(f"no signal {name!r} came in time")
            failed = await run_pass.recorder.fail_unless_answered(record, late, branch=branch)
            if isinstance(failed, RecordedStep):
                return await answered(TakenSignal(failed.output or "null", failed.input), branch)
            return WaitAnswer(error=failed)
        output = None if until is None else encode(until)
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=output)
        return Wait(name, record, until=until, signal=name)

    return Waiter(run_pass, place, answered.replayed, ask, signal=name, ended_at=ended_at)


class _TypedAnswer:
    """Gives the answer to a wait as the type that the handler asks for; for `pgqrs.Answer` with the actor."""

    def __init__(self, run_pass: RunPass, place: BranchPlace, what: str, as_type: Any) -> None:
        self._run_pass = run_pass
        self._place = place
        self._what = what
        self._branch = run_pass.branch()
        self._has_actor = as_type is GivenAnswer or get_origin(as_type) is GivenAnswer
        self._type: Any = (*get_args(as_type), Any)[0] if self._has_actor else as_type

    async def __call__(self, taken: TakenSignal, branch: Branch | None) -> WaitAnswer:
        run_pass, place = self._run_pass, self._place
        try:
            value = decode(taken.payload, self._type)
        except SerializationError as error:
            if run_pass.places.has_passed(self._branch):
                # An earlier pass could read it, and went on with it.
                read(run_pass, place, taken.payload, self._type)
            wrong = SerializationError(f"{self._what} {misfit(self._type, decode(taken.payload), error)}")
            return WaitAnswer(error=self._final(await refused_answer(run_pass, place, wrong, branch)))
        if not self._has_actor:
            return WaitAnswer(value)
        by = read(run_pass, place, taken.answered_by, Any)
        return WaitAnswer(GivenAnswer(value, by.get("actor") if isinstance(by, dict) else None))

    async def replayed(self, recorded: RecordedStep) -> WaitAnswer:
        """A recorded answer, or the error in its place: that of a wrong answer, or WaitTimeout."""
        if recorded.status is StepStatus.SUCCESS:
            return await self(TakenSignal(recorded.output or "null", recorded.input), current_branch.get())
        return WaitAnswer(error=self._final(failed_before(self._run_pass, self._place)))

    def _final(self, error: BaseException) -> BaseException:
        # The run's retry does not ask again: the signal is used up, and the sender believes that it was taken.
        self._run_pass.failures.mark_last(is_final=isinstance(error, SerializationError))
        return error


async def _signal(run_pass: RunPass, place: BranchPlace, name: str) -> TakenSignal | None:
    """Takes it, if it is there. Its number is the caller's to call written."""
    taken: TakenSignal | None
    pending = StepRecord(
        place.step_id, place.ordinal, StepStatus.PAUSED, sequence=run_pass.order.number(place.step_id)
    )
    # A wait of an earlier pass may have been answered by a person meanwhile: then that is its answer.
    is_old, fence = place.step_id in run_pass.claim.steps, run_pass.claim.fence
    held, taken = await run_pass.recorder.ask(
        lambda again: claims.take_signal(run_pass.db, fence, pending, name=name, again=again or is_old)
    )
    if not held:
        raise run_pass.lease.lose()
    return taken
