"""Waiting for time, a person or a signal: a waiting run holds nothing, and a replay finds its answer recorded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, get_args, get_origin

from pgqrs.db import claims
from pgqrs.db.claims import TakenSignal
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.db.writes import StepRecord
from pgqrs.engine.branches import Branch, Place, current_branch, outside
from pgqrs.engine.execution import Execution, Wait
from pgqrs.engine.registry import misfit
from pgqrs.engine.steps import apart, failed_before, read
from pgqrs.errors import SerializationError, WaitTimeout
from pgqrs.serialization import decode, encode
from pgqrs.types import Answer as GivenAnswer
from pgqrs.types import StepStatus

_FINAL = (StepStatus.SUCCESS, StepStatus.ERROR)


class Answer(NamedTuple):
    """What a wait has come to: a value, or the error that is raised in its place."""

    value: Any = None
    error: BaseException | None = None

    def given(self, execution: Execution) -> Any:
        """The value to the handler, or the error."""
        if self.error is not None:
            raise execution.raised(self.error)
        return self.value


EndedAt = Callable[[Mapping[str, datetime]], Coroutine[Any, Any, datetime | None]]
# The answer that an earlier pass has recorded.
Replay = Callable[[RecordedStep], Coroutine[Any, Any, Answer]]
# The answer, recorded now, or what to wait for; for the branch that asks.
Ask = Callable[[Branch | None], Coroutine[Any, Any, Answer | Wait]]


class Waiter(Coroutine[Any, Any, Any]):
    """What `ctx.sleep`, `wait_for`, `pause` and `child.result` return: to be awaited, or given to `ctx.first`.

    A coroutine, so that `create_task` and `gather` take it; its own class, so that `first` can look without waiting.
    """

    def __init__(
        self,
        execution: Execution,
        place: Place,
        replay: Replay,
        ask: Ask,
        *,
        signal: str | None = None,
        ended_at: EndedAt | None = None,
    ) -> None:
        self.execution = execution
        self.place = place
        # The name of the signal that it waits for.
        self.signal = signal
        self._replay = replay
        self._ask = ask
        self._ended_at = ended_at
        self._answer: Answer | None = None
        self._inner: Coroutine[Any, Any, Any] | None = None
        self.is_begun = False
        execution.unawaited[place.step_id] = self

    async def replayed(self) -> Answer | None:
        """The answer, if it is recorded."""
        recorded = self.execution.recorded(self.place)
        if self._answer is None and recorded is not None and recorded.status in _FINAL:
            self._answer = await self._replay(recorded)
        return self._answer

    async def look(self, branch: Branch | None) -> Answer | Wait:
        """The answer, or what to wait for. An answer that was given is given again: it takes no second signal.

        In a task of the engine's own, for the branch that asks.
        """
        looked = await self.replayed() or await self._ask(branch)
        if isinstance(looked, Answer):
            self._answer = looked
        return looked

    async def ended_at(self, sent: Mapping[str, datetime]) -> datetime | None:
        """Since when it need not be waited for; None while it must be. `sent` says when each unread signal was."""
        return None if self._ended_at is None else await self._ended_at(sent)

    async def _wait(self) -> Any:
        execution, step_id = self.execution, self.place.step_id
        answer = await self.replayed()
        if answer is not None:
            if execution.has_branches and step_id in execution.claim.steps:
                await execution.number_late(self.place)
            await execution.turn(step_id)
            return answer.given(execution)
        await execution.leave_behind()
        execution.begin()
        looked: Answer | Wait = await apart(execution, self.look(current_branch.get()), step_id)
        if isinstance(looked, Wait):
            await execution.resting.wait(looked)
        return looked.given(execution)

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


def sleep(execution: Execution, place: Place, length: timedelta) -> Waiter:
    """Until the time that was fixed when this was first asked for."""

    async def ended_at(_sent: Mapping[str, datetime]) -> datetime | None:
        until = _until(execution, place, length)
        return None if until is None or until > execution.now() else until

    async def replay(_recorded: RecordedStep) -> Answer:
        return Answer()

    async def ask(_branch: Branch | None) -> Answer | Wait:
        until = _until(execution, place, length) or execution.now()
        if until > execution.now():
            record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=encode(until))
            return Wait(f"sleep until {until:%Y-%m-%d %H:%M:%S}", record, until=until)
        await execution.record(StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=encode(until)))
        return Answer()

    return Waiter(execution, place, replay, ask, ended_at=ended_at)


def _until(execution: Execution, place: Place, length: timedelta | None) -> datetime | None:
    """When the wait ends: the time that was fixed when it was first asked for, or so long from now."""
    recorded = execution.claim.steps.get(place.step_id)
    if recorded is not None and recorded.output and recorded.status not in (StepStatus.SUCCESS, StepStatus.ERROR):
        until: datetime = decode(recorded.output, datetime)
        return until
    return None if length is None else execution.now() + length


def pause(execution: Execution, place: Place, message: str, *, as_type: Any = Any) -> Waiter:
    """Until a person resumes the run; gives the data that the run is resumed with."""
    answered = _Answering(execution, place, "the data to resume with", as_type)

    async def ask(_branch: Branch | None) -> Answer | Wait:
        return Wait(message, StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED))

    return Waiter(execution, place, answered.replayed, ask)


def wait_for(execution: Execution, place: Place, name: str, *, seconds: float | None, as_type: Any) -> Waiter:
    """The oldest unread signal of that name; WaitTimeout after so many seconds."""
    answered = _Answering(execution, place, f"signal {name!r}", as_type)
    length = None if seconds is None else timedelta(seconds=seconds)

    async def ended_at(sent: Mapping[str, datetime]) -> datetime | None:
        until = _until(execution, place, length)
        times = [sent.get(name), None if until is None or until > execution.now() else until]
        return min((each for each in times if each is not None), default=None)

    async def ask(branch: Branch | None) -> Answer | Wait:
        try:
            taken = await _signal(execution, place, name)
            if taken is not None:
                return await answered(taken, branch)
        finally:
            # Not before a wrong answer is refused: the results of other branches must not overtake that.
            execution.is_numbered(place.step_id)
        until = _until(execution, place, length)
        if until is not None and until <= execution.now():
            record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR)
            late = WaitTimeout(f"no signal {name!r} came in time")
            return Answer(error=await execution.fail(record, late, branch=branch))
        output = None if until is None else encode(until)
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=output)
        return Wait(name, record, until=until, signal=name)

    return Waiter(execution, place, answered.replayed, ask, signal=name, ended_at=ended_at)


class _Answering:
    """Gives the answer to a wait as the type that the handler asks for; for `pgqrs.Answer` with the actor."""

    def __init__(self, execution: Execution, place: Place, what: str, as_type: Any) -> None:
        self._execution = execution
        self._place = place
        self._what = what
        self._branch = execution.branch()
        self._has_actor = as_type is GivenAnswer or get_origin(as_type) is GivenAnswer
        self._type: Any = (*get_args(as_type), Any)[0] if self._has_actor else as_type

    async def __call__(self, taken: TakenSignal, branch: Branch | None) -> Answer:
        execution, place = self._execution, self._place
        try:
            value = decode(taken.payload, self._type)
        except SerializationError as error:
            if execution.places.has_passed(self._branch):
                # An earlier pass could read it, and went on with it.
                read(execution, place, taken.payload, self._type)
            wrong = SerializationError(f"{self._what} {misfit(self._type, decode(taken.payload), error)}")
            return Answer(error=await self._refused(wrong, branch))
        if not self._has_actor:
            return Answer(value)
        by = read(execution, place, taken.answered_by, Any)
        return Answer(GivenAnswer(value, by.get("actor") if isinstance(by, dict) else None))

    async def _refused(self, wrong: SerializationError, branch: Branch | None) -> BaseException:
        """The error in the place of the answer, now and in every replay."""
        execution, place = self._execution, self._place
        text = execution.error_text(wrong)
        execution.begin()
        try:
            is_held = await execution.ask(
                lambda _again: outside(
                    claims.refuse_answer(execution.db, execution.claim.fence, place.step_id, error=text)
                )
            )
        finally:
            execution.finish()
        if not is_held:
            raise execution.lose()
        record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR, error=text)
        return self._final(execution.failure_of(record, branch=branch))

    async def replayed(self, recorded: RecordedStep) -> Answer:
        """A recorded answer, or the error in its place: that of a wrong answer, or WaitTimeout."""
        if recorded.status is StepStatus.SUCCESS:
            return await self(TakenSignal(recorded.output or "null", recorded.input), current_branch.get())
        return Answer(error=self._final(failed_before(self._execution, self._place)))

    def _final(self, error: BaseException) -> BaseException:
        # The run's retry does not ask again: the signal is used up, and the sender believes that it was taken.
        self._execution.failed[-1].is_final = isinstance(error, SerializationError)
        return error


async def _signal(execution: Execution, place: Place, name: str) -> TakenSignal | None:
    """Takes it, if it is there. Its number is the caller's to call written."""
    taken: TakenSignal | None
    pending = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, sequence=execution.number(place.step_id))
    held, taken = await execution.ask(
        lambda again: claims.take_signal(execution.db, execution.claim.fence, pending, name=name, again=again)
    )
    if not held:
        raise execution.lose()
    return taken
