"""What a handler is given: steps, waits, children; awaited in async handlers, plain in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pgqrs.clock import microseconds
from pgqrs.db import claims
from pgqrs.db.database import Transaction, WorkFailed
from pgqrs.db.history import Emission
from pgqrs.db.tables.runs import RecordedStep, origin
from pgqrs.db.writes import StepRecord
from pgqrs.engine import waiting
from pgqrs.engine.branches import Place, current_body, current_branch, outside
from pgqrs.engine.children import Child, spawn
from pgqrs.engine.execution import Execution, FailedStep, Wait
from pgqrs.engine.observing import Tracer
from pgqrs.engine.outcome import asked_delay, described, error_again, message_of, storable
from pgqrs.engine.registry import return_type, shape_of
from pgqrs.engine.runlog import RunLog
from pgqrs.engine.threads import in_thread
from pgqrs.errors import (
    ConfigError,
    LeaseLost,
    PauseError,
    PermanentError,
    RunCancelled,
    SerializationError,
)
from pgqrs.names import checked_event_type, checked_name, checked_step_name
from pgqrs.retry import RetryPolicy
from pgqrs.serialization import decode, encode
from pgqrs.types import StepStatus

T = TypeVar("T")

# A plain handler's context is another class with the same verbs (engine/plain.py).
current_context: contextvars.ContextVar[Any] = contextvars.ContextVar("pgqrs_context", default=None)

_ONCE = RetryPolicy(max_attempts=1)
_MOST_INPUT_BYTES = 4096


class Context:
    """An async handler's context. A step's id is taken when `step` is *called*, its body runs when it is awaited."""

    __pgqrs_context__ = True

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.run_id = execution.claim.run_id
        self.workflow = execution.handler.name
        self.attempt = execution.claim.lease.attempts

    @functools.cached_property
    def log(self) -> RunLog:
        """Adds run, workflow, attempt and step to what is logged, and says nothing twice when the run is replayed."""
        return RunLog(self._execution)

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this run, and no other run's anywhere: for effects outside the database."""
        # Its number alone is given again after a backup is restored, and is another run's in another database.
        return f"run-{self.run_id}-{microseconds(self._execution.claim.created_at):x}"

    @property
    def attributes(self) -> dict[str, Any]:
        """What the run was triggered with for people and searches; a scheduled run's `schedule` and `slot`."""
        text = self._execution.claim.attributes
        return {} if text is None else dict(decode(text) or {})

    @property
    def cancelled(self) -> bool:
        """True when the run was cancelled, or is somebody else's by now: stop what you are doing."""
        return self._execution.cancelled or self._execution.lost

    # -- steps -------------------------------------------------------------------------------------------

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Awaitable[Any]:
        """Runs `function` once and remembers what it returned: a replay gets that without running it.

        Async functions run on the loop, plain ones in a thread. The value returned is what is on record, decoded, so
        that the first run and a replay can never differ.
        """
        place = self._execution.place(checked_step_name(name))
        return self._step(place, function, args, kwargs, retry or _ONCE, timeout)

    async def _step(  # noqa: PLR0917 - the parts of one call
        self,
        place: Place,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retry: RetryPolicy,
        seconds: float | None,
    ) -> Any:
        execution = self._execution
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR):
            return self._replayed(recorded, place, function)
        attempts = (recorded.attempts if recorded else 0) + 1
        execution.begin()
        tracer = execution.tracer
        make = self._attempt if tracer is None else functools.partial(self._traced_attempt, tracer)
        attempt = make(place, function, args, kwargs, retry, seconds, attempts)
        if execution.is_alone:
            # In the handler's own task: no other branch can give up and end it half way.
            try:
                value = await attempt
            finally:
                execution.finish()
        else:
            value = await self._shielded(attempt)
        if type(value) is Wait:
            await execution.wait(value)
        return value

    async def _shielded(self, attempt: Coroutine[Any, Any, Any]) -> Any:
        """In a task of its own: when a sibling gives up, what is in flight here still finishes and is recorded."""
        execution = self._execution
        body = execution.begun(outside(attempt))
        try:
            return await asyncio.shield(body)
        except asyncio.CancelledError:
            if execution.cancelled or execution.lost:
                body.cancel()
            raise

    async def _traced_attempt(self, tracer: Tracer, place: Place, *rest: Any) -> Any:
        with tracer.step(self.workflow, self.run_id, place, attempt=rest[-1]):
            return await self._attempt(place, *rest)

    async def _attempt(  # noqa: PLR0917 - as above
        self,
        place: Place,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retry: RetryPolicy,
        seconds: float | None,
        attempts: int,
    ) -> Any:
        """What is on record now; or the Wait, which no value can be, for when it has to be tried again."""
        execution = self._execution
        shape = shape_of(function)
        emitted: list[Emission] = []
        began = execution.seconds()
        # The body is no branch of the handler's, whatever tasks it makes.
        branch, outer = current_branch.set(None), current_body.set((place, attempts, emitted))
        try:
            try:
                body = function(*args, **kwargs) if shape.is_async else _in_thread(function, args, kwargs)
                result = await body if seconds is None else await _within(seconds, body)
            finally:
                current_branch.reset(branch)
                current_body.reset(outer)
            text = encode(result, max_bytes=execution.config.max_payload_bytes)
            given = _small_input(args, kwargs) if args or kwargs else None
            took = execution.seconds() - began
            record = StepRecord(place[0], place[1], StepStatus.SUCCESS, given, text, None, attempts, took)
            await execution.write(record, emitted)
            return decode(text, shape.returns)
        except PauseError as error:
            record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, attempts=attempts)
            return Wait(message_of(error) or place.step_id, record)
        except LeaseLost:
            execution.lost = True
            raise
        except RunCancelled:
            raise
        except Exception as error:  # noqa: BLE001 - a step may raise anything
            return await self._failed(place, error, retry, attempts, execution.seconds() - began)

    async def _failed(
        self, place: Place, error: Exception, retry: RetryPolicy, attempts: int, seconds: float
    ) -> Wait:
        """Another attempt later, or the error on record and up to the handler."""
        execution = self._execution
        text, _ = described(error)
        permanent = isinstance(error, PermanentError | SerializationError) or not retry.retries(error)
        if attempts < retry.max_attempts and not permanent:
            if execution.tracer is not None:
                execution.tracer.step_failed(error)
            asked = asked_delay(error)
            until = execution.now() + timedelta(seconds=retry.delay(attempts) if asked is None else asked)
            record = StepRecord(
                place.step_id, place.ordinal, StepStatus.PENDING, error=text, attempts=attempts, seconds=seconds
            )
            return Wait(f"retry of {place.step_id}", record, until=until, retry=True)
        record = StepRecord(
            place.step_id, place.ordinal, StepStatus.ERROR, error=text, attempts=attempts, seconds=seconds
        )
        await execution.record(record)
        execution.failed.append(FailedStep(record, error))
        raise error

    def _replayed(self, recorded: RecordedStep, place: Place, function: Callable[..., Any]) -> Any:
        if recorded.status is StepStatus.SUCCESS:
            return decode(recorded.output or "null", return_type(function))
        error = error_again(recorded, self._execution.handler.function)
        record = StepRecord(
            place.step_id, place.ordinal, StepStatus.ERROR, error=recorded.error, attempts=recorded.attempts
        )
        self._execution.failed.append(FailedStep(record, error))
        raise error

    def transaction(self, name: str, work: Callable[[Transaction], Coroutine[Any, Any, Any]]) -> Awaitable[Any]:
        """A step whose effect is in this database: `await work(tx)` and its record commit together, exactly once.

        `work` may await nothing but `tx`: on SQLite it runs in the writer's thread, and nothing else is written
        meanwhile.
        """
        return self._transaction(self._execution.place(checked_step_name(name)), work)

    async def _transaction(self, place: Place, work: Callable[[Transaction], Coroutine[Any, Any, Any]]) -> Any:
        execution = self._execution
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status is StepStatus.SUCCESS:
            return decode(recorded.output or "null", return_type(work))

        async def encoded(transaction: Transaction) -> tuple[str, list[Emission]]:
            limit = execution.config.max_payload_bytes
            output = encode(await work(transaction), max_bytes=limit)
            return output, [
                Emission(self.run_id, checked_event_type(name), encode(data, max_bytes=limit))
                for name, data in transaction.emitted
            ]

        pending = StepRecord(place.step_id, place.ordinal, StepStatus.PENDING)
        execution.begin()
        try:
            with execution.watched(place):
                output = await claims.transact(execution.db, execution.claim.fence, pending, encoded)
                if output is None:
                    execution.lost = True
                    execution.check_alive()
        except WorkFailed as failed:
            raise failed.error from failed.error.__cause__
        finally:
            execution.finish()
        return decode(output or "null", return_type(work))

    # -- events for others -------------------------------------------------------------------------------

    def emit(self, event_type: str, data: Any = None) -> Awaitable[None]:
        """Publishes an event through the outbox, once however often this is replayed.

        In the body of a step it goes into the outbox with the step's checkpoint; elsewhere it is a step of its own.
        """
        name = checked_event_type(event_type)
        payload = encode(data, max_bytes=self._execution.config.max_payload_bytes)
        emission = Emission(self.run_id, name, payload)
        body = current_body.get()
        if body is not None:
            body[2].append(emission)
            return _nothing()
        return self._emit(self._execution.place(f"emit:{name}"), emission)

    async def _emit(self, place: Place, emission: Emission) -> None:
        execution = self._execution
        recorded = execution.recorded(place)
        if recorded is not None and recorded.status is StepStatus.SUCCESS:
            return
        execution.begin()
        step = StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output="null")
        # Shielded as any step: when a sibling gives up, this is still recorded.
        await asyncio.shield(execution.begun(outside(execution.record(step, [emission]))))

    # -- waiting -----------------------------------------------------------------------------------------

    def sleep(self, seconds: float | timedelta) -> Awaitable[None]:
        """Wakes at the time that was fixed when it was first asked for; holds nothing meanwhile."""
        length = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        return waiting.sleep(self._execution, self._execution.place("sleep"), length)

    def pause(self, message: str = "resume") -> Awaitable[Any]:
        """Waits until somebody resumes this run; gives the data that they resume it with."""
        if not isinstance(message, str):
            raise ConfigError(f"what a pause waits for is said in text, not {message!r}")
        return waiting.pause(self._execution, self._execution.place("pause"), storable(message))

    def wait_for(self, name: str, *, timeout: float | None = None, type: Any = Any) -> Awaitable[Any]:  # noqa: A002 - the design's word
        """The oldest unread signal of that name, sent before or after this call; WaitTimeout after `timeout`."""
        place = self._execution.place(f"wait_for:{checked_step_name(name)}")
        return waiting.wait_for(self._execution, place, name, seconds=timeout, as_type=type)

    # -- children ----------------------------------------------------------------------------------------

    def spawn(self, workflow: Any, params: Any = None) -> Awaitable[Child]:
        """Starts a child run, once however often this is replayed; `await child.result()` waits for it."""
        return self._spawn_one(self._execution.place("spawn"), _name_of(workflow), params)

    async def _spawn_one(self, place: Place, workflow: str, params: Any) -> Child:
        [child] = await spawn(self._execution, place, workflow, [params])
        return child

    def map(self, workflow: Any, items: Iterable[Any], *, limit: int | None = None) -> Awaitable[list[Any]]:
        """One child run per item, `limit` of them at a time; their results in the order of the items."""
        return self._map(_name_of(workflow), list(items), limit)

    async def _map(self, workflow: str, items: list[Any], limit: int | None) -> list[Any]:
        size = limit or max(len(items), 1)
        results: list[Any] = []
        for start in range(0, len(items), size):
            place = self._execution.place("spawn")
            children = await spawn(self._execution, place, workflow, items[start : start + size])
            results += await self.gather(*(child.result() for child in children))
        return results

    def gather(self, *awaitables: Awaitable[Any]) -> Awaitable[list[Any]]:
        """As `asyncio.gather`."""
        return asyncio.gather(*awaitables)

    def progress(self, done: int, total: int | None = None, note: str = "") -> Awaitable[None]:
        """Shows people how far it is (`run.progress`); nothing depends on it, and a replay shows it again."""
        shown = {"done": done, "total": total, "note": note}
        return self._progress(encode({**origin(self._execution.claim.headers), **shown}))

    async def _progress(self, text: str) -> None:
        execution = self._execution
        execution.check_alive()
        await outside(claims.show_progress(execution.db, execution.claim.fence, text=text))

    # -- recorded answers --------------------------------------------------------------------------------

    def now(self) -> Awaitable[datetime]:
        """The database's time, on record."""
        return self.step("now", _typed(self._execution.now, datetime))

    def uuid(self) -> Awaitable[uuid.UUID]:
        return self.step("uuid", _typed(uuid.uuid4, uuid.UUID))

    def random(self) -> Awaitable[float]:
        return self.step("random", _typed(random.random, float))


async def _nothing() -> None:
    """For whoever awaits what was done at once."""


def _small_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """What a step was called with, for people who look; not kept when it is large, or cannot be stored."""
    shown = [arg for arg in args if not getattr(arg, "__pgqrs_context__", False)]
    try:
        return encode({"args": shown, **({"kwargs": kwargs} if kwargs else {})}, max_bytes=_MOST_INPUT_BYTES)
    except SerializationError:
        return None


def in_body() -> bool:
    """True in the body of a workflow, which each replay runs again, and outside of its steps."""
    return current_context.get() is not None and current_body.get() is None


def in_step() -> bool:
    """True in the body of a step."""
    return current_body.get() is not None


async def _within(seconds: float, body: Awaitable[Any]) -> Any:
    async with asyncio.timeout(seconds):
        return await body


async def _in_thread(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = await in_thread(function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def _typed(function: Callable[[], T], kind: type[T]) -> Callable[[], Coroutine[Any, Any, T]]:
    """As an async function whose annotation brings the type back from the record."""

    async def answer() -> T:
        return function()

    answer.__annotations__["return"] = kind
    return answer


def _name_of(workflow: Any) -> str:
    return checked_name("workflow", workflow if isinstance(workflow, str) else getattr(workflow, "name", workflow))
