"""Waiting for time, a person or a signal: a waiting run holds nothing, and a replay finds its answer recorded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pgqrs.db import claims
from pgqrs.db.writes import StepRecord
from pgqrs.engine.branches import Place, outside
from pgqrs.engine.execution import Execution, Wait
from pgqrs.engine.steps import read
from pgqrs.errors import WaitTimeout
from pgqrs.serialization import decode, encode
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


class Waiter(Coroutine[Any, Any, Any]):
    """What `ctx.sleep`, `wait_for`, `pause` and `child.result` return: to be awaited, or given to `ctx.first`.

    A coroutine, so that `create_task` and `gather` take it; its own class, so that `first` can look without waiting.
    """

    def __init__(
        self, execution: Execution, place: Place, look: Callable[[], Coroutine[Any, Any, Answer | Wait]]
    ) -> None:
        self.execution = execution
        self.place = place
        self._look = look
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

    async def _wait(self) -> Any:
        answer = await self.look()
        if isinstance(answer, Wait):
            await self.execution.resting.wait(answer)
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

    async def look() -> Answer | Wait:
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status is StepStatus.SUCCESS:
            return Answer()
        await execution.leave_behind()
        until = decode(recorded.output, datetime) if recorded and recorded.output else execution.now() + length
        if until > execution.now():
            record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=encode(until))
            return Wait(f"sleep until {until:%Y-%m-%d %H:%M:%S}", record, until=until)
        await execution.record(StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=encode(until)))
        return Answer()

    return Waiter(execution, place, look)


def pause(execution: Execution, place: Place, message: str) -> Waiter:
    """Until a person resumes the run; gives the data that the run is resumed with."""

    async def look() -> Answer | Wait:
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status is StepStatus.SUCCESS:
            return Answer(decode(recorded.output or "null"))
        await execution.leave_behind()
        return Wait(message, StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED))

    return Waiter(execution, place, look)


def wait_for(execution: Execution, place: Place, name: str, *, seconds: float | None, as_type: Any) -> Waiter:
    """The oldest unread signal of that name; WaitTimeout after so many seconds."""

    async def look() -> Answer | Wait:
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR):
            return replay(execution, place, as_type)
        await execution.leave_behind()
        payload = await _signal(execution, place, name)
        if payload is not None:
            return Answer(read(execution, place, payload, as_type))
        until = decode(recorded.output, datetime) if recorded and recorded.output else None
        if until is None and seconds is not None:
            until = execution.now() + timedelta(seconds=seconds)
        if until is not None and until <= execution.now():
            record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR)
            return Answer(error=await execution.fail(record, WaitTimeout(f"no signal {name!r} came in time")))
        output = None if until is None else encode(until)
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=output)
        return Wait(name, record, until=until, signal=name)

    return Waiter(execution, place, look)


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
        place.step_id, place.ordinal, StepStatus.ERROR, error=recorded.error, attempts=recorded.attempts
    )


async def _signal(execution: Execution, place: Place, name: str) -> str | None:
    pending = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED)
    payload: str | None
    execution.begin()
    try:
        held, payload = await execution.ask(
            lambda again: outside(
                claims.take_signal(execution.db, execution.claim.fence, pending, name=name, again=again)
            )
        )
    finally:
        execution.finish()
    if not held:
        raise execution.lose()
    return payload
