"""Waiting for time, a person or a signal: a waiting run holds nothing, and a replay finds its answer recorded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, get_args, get_origin

from pgqrs.db import claims
from pgqrs.db.claims import TakenSignal
from pgqrs.db.writes import StepRecord
from pgqrs.engine.branches import Place, outside
from pgqrs.engine.execution import Execution, Wait
from pgqrs.engine.registry import misfit
from pgqrs.engine.steps import read
from pgqrs.errors import SerializationError, WaitTimeout
from pgqrs.serialization import decode, encode
from pgqrs.types import Answer as GivenAnswer
from pgqrs.types import StepStatus


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


class Waiter(Coroutine[Any, Any, Any]):
    """What `ctx.sleep`, `wait_for`, `pause` and `child.result` return: to be awaited, or given to `ctx.first`.

    A coroutine, so that `create_task` and `gather` take it; its own class, so that `first` can look without waiting.
    """

    def __init__(
        self,
        execution: Execution,
        place: Place,
        look: Callable[[], Coroutine[Any, Any, Answer | Wait]],
        *,
        signal: str | None = None,
        ended_at: EndedAt | None = None,
    ) -> None:
        self.execution = execution
        self.place = place
        # The name of the signal that it waits for.
        self.signal = signal
        self._look = look
        self._ended_at = ended_at
        self._answer: Answer | None = None
        self._inner: Coroutine[Any, Any, Any] | None = None
        self.is_begun = False
        execution.unawaited[place.step_id] = self

    async def look(self) -> Answer | Wait:
        """The answer, or what to wait for. An answer that was given is given again: it takes no second signal."""
        if self._answer is not None:
            return self._answer
        looked = await self._look()
        if isinstance(looked, Answer):
            self._answer = looked
        return looked

    async def ended_at(self, sent: Mapping[str, datetime]) -> datetime | None:
        """Since when it need not be waited for; None while it must be. `sent` says when each unread signal was."""
        return None if self._ended_at is None else await self._ended_at(sent)

    async def _wait(self) -> Any:
        answer = await self.look()
        if isinstance(answer, Wait):
            await self.execution.resting.wait(answer)
        await self.execution.turn(self.place.step_id)
        return answer.given(self.execution)

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

    async def look() -> Answer | Wait:
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status is StepStatus.SUCCESS:
            return Answer()
        await execution.leave_behind()
        until = _until(execution, place, length) or execution.now()
        if until > execution.now():
            record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=encode(until))
            return Wait(f"sleep until {until:%Y-%m-%d %H:%M:%S}", record, until=until)
        await execution.record(StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=encode(until)))
        return Answer()

    return Waiter(execution, place, look, ended_at=ended_at)


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

    async def look() -> Answer | Wait:
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status is StepStatus.SUCCESS:
            if recorded.sequence is None:
                await _number_late(execution, place)
            return await answered(TakenSignal(recorded.output or "null", recorded.input))
        if recorded is not None and recorded.status is StepStatus.ERROR:
            return answered.replayed()
        await execution.leave_behind()
        return Wait(message, StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED))

    return Waiter(execution, place, look)


def wait_for(execution: Execution, place: Place, name: str, *, seconds: float | None, as_type: Any) -> Waiter:
    """The oldest unread signal of that name; WaitTimeout after so many seconds."""
    answered = _Answering(execution, place, f"signal {name!r}", as_type)
    length = None if seconds is None else timedelta(seconds=seconds)

    async def ended_at(sent: Mapping[str, datetime]) -> datetime | None:
        until = _until(execution, place, length)
        return sent.get(name) or (None if until is None or until > execution.now() else until)

    async def look() -> Answer | Wait:
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status is StepStatus.SUCCESS:
            return await answered(TakenSignal(recorded.output or "null", recorded.input))
        if recorded is not None and recorded.status is StepStatus.ERROR:
            return answered.replayed()
        await execution.leave_behind()
        taken = await _signal(execution, place, name)
        if taken is not None:
            return await answered(taken)
        until = _until(execution, place, length)
        if until is not None and until <= execution.now():
            record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR)
            return Answer(error=await execution.fail(record, WaitTimeout(f"no signal {name!r} came in time")))
        output = None if until is None else encode(until)
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=output)
        return Wait(name, record, until=until, signal=name)

    return Waiter(execution, place, look, signal=name, ended_at=ended_at)


def replay(execution: Execution, place: Place, as_type: Any) -> Answer:
    """A recorded answer."""
    recorded = execution.claim.steps[place.step_id]
    if recorded.status is StepStatus.SUCCESS:
        return Answer(read(execution, place, recorded.output, as_type))
    return Answer(error=execution.failure_of(failed_record(execution, place)))


def failed_record(execution: Execution, place: Place) -> StepRecord:
    """A recorded failure."""
    recorded = execution.claim.steps[place.step_id]
    return StepRecord(
        place.step_id,
        place.ordinal,
        StepStatus.ERROR,
        error=recorded.error,
        attempts=recorded.attempts,
        sequence=recorded.sequence,
    )


class _Answering:
    """Gives the answer to a wait as the type that the handler asks for; for `pgqrs.Answer` with the actor."""

    def __init__(self, execution: Execution, place: Place, what: str, as_type: Any) -> None:
        self._execution = execution
        self._place = place
        self._what = what
        self._branch = execution.branch()
        self._has_actor = as_type is GivenAnswer or get_origin(as_type) is GivenAnswer
        self._type: Any = (*get_args(as_type), Any)[0] if self._has_actor else as_type

    async def __call__(self, taken: TakenSignal) -> Answer:
        execution, place = self._execution, self._place
        try:
            value = decode(taken.payload, self._type)
        except SerializationError as error:
            if execution.places.has_passed(self._branch):
                # An earlier pass could read it, and went on with it.
                read(execution, place, taken.payload, self._type)
            wrong = SerializationError(f"{self._what} {misfit(self._type, decode(taken.payload), error)}")
            return Answer(error=await self._refused(wrong))
        if not self._has_actor:
            return Answer(value)
        by = read(execution, place, taken.answered_by, Any)
        return Answer(GivenAnswer(value, by.get("actor") if isinstance(by, dict) else None))

    async def _refused(self, wrong: SerializationError) -> BaseException:
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
        return self._failed(StepRecord(place.step_id, place.ordinal, StepStatus.ERROR, error=text))

    def replayed(self) -> Answer:
        """A recorded error: that of a wrong answer, or WaitTimeout."""
        return Answer(error=self._failed(failed_record(self._execution, self._place)))

    def _failed(self, record: StepRecord) -> BaseException:
        error = self._execution.failure_of(record)
        # The run's retry does not ask again: the signal is used up, and the sender believes that it was taken.
        self._execution.failed[-1].is_final = isinstance(error, SerializationError)
        return error


async def _number_late(execution: Execution, place: Place) -> None:
    """A person has answered it between two passes: the handler gets that after all that it got in the first."""
    if not execution.has_branches:
        return
    await execution.leave_behind()
    number = execution.number(place.step_id)
    fence = execution.claim.fence
    try:
        await execution.ask(lambda _again: outside(claims.number_step(execution.db, fence, place.step_id, number)))
    finally:
        execution.is_numbered(place.step_id)


async def _signal(execution: Execution, place: Place, name: str) -> TakenSignal | None:
    taken: TakenSignal | None
    execution.begin()
    pending = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, sequence=execution.number(place.step_id))
    try:
        held, taken = await execution.ask(
            lambda again: outside(
                claims.take_signal(execution.db, execution.claim.fence, pending, name=name, again=again)
            )
        )
    finally:
        execution.is_numbered(place.step_id)
        execution.finish()
    if not held:
        raise execution.lose()
    return taken
