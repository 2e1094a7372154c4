"""A step: its body, then its record. What the body raises is the user's; what the record runs into is the engine's.

    recorded? return or raise that : run the body -> SUCCESS, or ERROR, or a Wait for the next attempt

The value or error that the handler gets is the recorded one, decoded, in the first pass too: a replay cannot differ.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, NamedTuple

from pgqrs.db.runs import claims
from pgqrs.db.runs.history import Emission
from pgqrs.db.runs.records import StepRecord
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.definitions.handlers import misfit, return_type, shape_of
from pgqrs.engine.instrumentation import Tracer
from pgqrs.engine.recorded_errors import message_of
from pgqrs.engine.replay.branch_tasks import BranchTask
from pgqrs.engine.replay.branches import Branch, BranchPlace, StepCall, current_body, current_branch
from pgqrs.engine.replay.interruption import uninterrupted, was_interrupted
from pgqrs.engine.replay.refusals import interrupted, outlasted
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.suspension import Wait
from pgqrs.engine.replay.task_factory import outside
from pgqrs.engine.replay.unwinding import EngineSignal
from pgqrs.engine.runs.outcome import asked_delay
from pgqrs.engine.threads import caught, start_thread
from pgqrs.errors import (
    OutcomeUnknown,
    PauseError,
    PermanentError,
    SerializationError,
)
from pgqrs.retry import RetryPolicy
from pgqrs.serialization import decode, encode
from pgqrs.text.durations import shown as shown_value
from pgqrs.types import StepStatus

_MOST_INPUT_BYTES = 4096
# Bodies of plain steps whose time was up: a thread cannot be ended, so the next attempt waits for it.
_overdue: dict[tuple[object, int, str], Future[Any]] = {}


class _Done(NamedTuple):
    """What the body returned, as it is recorded, and as it comes back."""

    text: str
    value: Any


class _Failed(NamedTuple):
    """What the body raised; `is_unknown` when it may have done its work all the same."""

    error: BaseException
    is_unknown: bool = False


class Raise(NamedTuple):
    """The recorded error, which the handler is to get."""

    error: BaseException


def check_step_call(verb: str, name: object, function: object) -> None:
    """Raise PermanentError for what no retry can mend: a call in the place of the function, or the wrong order."""
    if callable(function) and not callable(name):
        return
    if callable(name):
        shown = repr(function) if isinstance(function, str) else "'name'"
        called = getattr(name, "__name__", "function")
        written = "function" if called == "<lambda>" else called
        raise PermanentError(f"ctx.{verb} takes the name first: write ctx.{verb}({shown}, {written})")
    if inspect.iscoroutine(function):
        # Refused here, with the reason: Python's warning that it was never awaited would say less.
        function.close()
    got = "a coroutine" if inspect.isawaitable(function) else shown_value(function)
    named = shown_value(name)
    example = "work" if verb == "transaction" else "charge, a"
    raise PermanentError(
        f"ctx.{verb}({named}, ...) takes a function, got {got}: pass the function and its arguments, "
        f"ctx.{verb}({named}, {example})"
    )


async def step(
    run_pass: RunPass, call: StepCall, seen: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Any:
    """What is recorded of the step, which is executed first if nothing is. `seen` gives the function to run."""
    place = call.place
    recorded = run_pass.recorded(place)
    if recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR):
        return await replayed(run_pass, place, call.function, is_final=call.retry is not None)
    if run_pass.claim.steps:
        await run_pass.leave_behind()
    run_pass.in_flight.begin()
    branch = current_branch.get()
    attempts = (recorded.attempts if recorded else 0) + 1
    tracer = run_pass.tracer
    make = _attempt if tracer is None else functools.partial(_traced, tracer)
    function = seen(place.step_id, call.function)
    # As they are nearly always the same, no other tuple is made.
    called = call if function is call.function else call._replace(function=function)
    attempt = make(run_pass, called, attempts, branch)
    if run_pass.branches.is_single:
        # In the handler's own task: no other branch can give up and end it half way. As `uninterrupted`, written out:
        # a context manager takes a tenth of the time of a step.
        try:
            answer = await attempt
        except asyncio.CancelledError:
            if not was_interrupted(run_pass, is_undisturbed=True):
                raise
            raise run_pass.lease.halt(outlasted(place.step_id)) from None
        finally:
            run_pass.in_flight.finish()
    else:
        answer = await apart(run_pass, attempt, place.step_id)
    if type(answer) is Wait:
        await run_pass.resting.wait(answer)
    if type(answer) is Raise:
        raise run_pass.failures.raised(answer.error)
    return answer


async def apart(run_pass: RunPass, attempt: Coroutine[Any, Any, Any], step_id: str) -> Any:
    """In a task of its own: when a sibling gives up, what is in flight here still finishes and is recorded.

    The answer comes in its turn among the results of all branches. A branch that is cancelled hears of it at once,
    whatever it waits for here: in a replay it waits for its turn in the same way. `in_flight.begin()` comes before.
    """
    body = run_pass.in_flight.begun(outside(attempt))
    try:
        await run_pass.order.in_turn(body, step_id)
        return body.result()
    except asyncio.CancelledError:
        if run_pass.is_unwinding:
            if run_pass.lease.halted is not None:
                body.cancel()
            raise
        task = asyncio.current_task()
        if run_pass.handler.is_async and (not isinstance(task, BranchTask) or task.timed_out):
            # A step's body records that itself. Whether another verb was recorded is unknown.
            body.cancel()
            with uninterrupted(run_pass, step_id):
                answer = await body
            await run_pass.order.turn(step_id)
            return answer
        raise


async def replayed(
    run_pass: RunPass, place: BranchPlace, function: Callable[..., Any], *, is_final: bool = False
) -> Any:
    """What is recorded, returned or raised when it is its turn."""
    text = await replayed_text(run_pass, place, is_final=is_final)
    return await _answered(run_pass, place, text, return_type(function))


async def _answered(run_pass: RunPass, place: BranchPlace, text: str | None, as_type: Any) -> Any:
    """A recorded value. One that a person gave, and that is of another type, fails the step."""
    recorded, branch = run_pass.claim.steps[place.step_id], current_branch.get()
    if recorded.sequence is not None or branch is None or run_pass.places.has_passed(branch):
        return read(run_pass, place, text, as_type)
    try:
        return decode(text or "null", as_type)
    except SerializationError as error:
        wrong = SerializationError(f"the data to resume with {misfit(as_type, decode(text or 'null'), error)}")
    raise run_pass.failures.raised(await refused_answer(run_pass, place, wrong, branch))


async def refused_answer(
    run_pass: RunPass, place: BranchPlace, wrong: SerializationError, branch: Branch | None
) -> BaseException:
    """The error in the place of a person's answer, now and in every replay."""
    text = run_pass.failures.error_text(wrong)
    run_pass.in_flight.begin()
    try:
        is_held = await run_pass.recorder.ask(
            lambda _again: outside(claims.refuse_answer(run_pass.db, run_pass.claim.fence, place.step_id, error=text))
        )
    finally:
        run_pass.in_flight.finish()
    if not is_held:
        raise run_pass.lease.lose()
    record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR, error=text)
    return run_pass.failures.failure_of(record, branch=branch)


async def replayed_text(run_pass: RunPass, place: BranchPlace, *, is_final: bool = False) -> str | None:
    """As `replayed`, not decoded."""
    recorded = run_pass.claim.steps[place.step_id]
    # Before its turn: the step of a branch that is cancelled until then has failed all the same, and is tried again.
    error = None if recorded.status is StepStatus.SUCCESS else failed_before(run_pass, place, is_final=is_final)
    if run_pass.branches.has_several:
        if recorded.sequence is None:
            await run_pass.number_late(place)
        await run_pass.order.turn(place.step_id)
    if error is not None:
        raise run_pass.failures.raised(error)
    return recorded.output


def failed_before(run_pass: RunPass, place: BranchPlace, *, is_final: bool = False) -> BaseException:
    """The recorded error of a step that failed in an earlier pass."""
    recorded = run_pass.claim.steps[place.step_id]
    record = StepRecord(
        place.step_id,
        place.ordinal,
        StepStatus.ERROR,
        error=recorded.error,
        attempts=recorded.attempts,
        sequence=recorded.sequence,
    )
    return run_pass.failures.failure_of(record, is_final=is_final)


def read(run_pass: RunPass, place: BranchPlace, text: str | None, as_type: Any) -> Any:
    """A recorded value. One that the code of today cannot read parks the run: the handler never saw such an error."""
    try:
        return decode(text or "null", as_type)
    except SerializationError as error:
        raise run_pass.diverged(
            f"has recorded step {place.step_id!r} with a value that cannot be read any more ({error})"
        ) from None


async def _traced(tracer: Tracer, run_pass: RunPass, call: StepCall, attempts: int, *rest: Any) -> Any:
    with tracer.step(run_pass.handler.name, run_pass.claim.run_id, call.place, attempt=attempts):
        return await _attempt(run_pass, call, attempts, *rest)


async def _attempt(run_pass: RunPass, call: StepCall, attempts: int, branch: Branch | None) -> Any:
    """The value that is recorded now; or the error that is; or the Wait for when it has to be tried again."""
    place, retry = call.place, call.retry
    emitted: list[Emission] = []
    began = run_pass.seconds()
    unknown = None
    if retry is not None and not retry.retry_unknown:
        unknown = await _begun_before(run_pass, place, attempts)
    done = await _body(run_pass, call, attempts, emitted) if unknown is None else _Failed(unknown, is_unknown=True)
    took = run_pass.seconds() - began
    if isinstance(done, _Done):
        given = small_input(call.args, call.kwargs) if call.args or call.kwargs else None
        number = run_pass.order.number(place[0])
        record = StepRecord(place[0], place[1], StepStatus.SUCCESS, given, done[0], None, attempts, took, number)
        answered = await run_pass.recorder.record(record, emitted)
        if answered is not None:
            return read(run_pass, place, answered.output, return_type(call.function))
        return done[1]
    error, is_unknown = done
    if run_pass.lease.halted is not None or run_pass.lease.handing_back:
        # The body was cancelled, and this is what it made of it.
        raise asyncio.CancelledError
    if isinstance(error, PauseError):
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, attempts=attempts)
        return Wait(message_of(error) or place.step_id, record)
    if is_unknown and retry is not None and not retry.retry_unknown:
        call = call._replace(retry=retry.with_attempts(1))
    record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR, attempts=attempts, seconds=took)
    return await _failed(run_pass, call, record, error, branch)


async def _begun_before(run_pass: RunPass, place: BranchPlace, attempts: int) -> OutcomeUnknown | None:
    """Notes that the body begins; or finds that it began before, which is all that is known of it."""
    recorded = run_pass.claim.steps.get(place.step_id)
    if recorded is not None and recorded.status is StepStatus.RUNNING:
        return _unknown(place, "began in an earlier attempt")
    await run_pass.recorder.record(StepRecord(place.step_id, place.ordinal, StepStatus.RUNNING, attempts=attempts))
    return None


def _unknown(place: BranchPlace, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"step {place.step_id!r} {why}, and whether it did its work is unknown; its policy says retry_unknown=False, "
        "so it does not run again: find out, then restart the run or catch this error"
    )


async def _body(run_pass: RunPass, call: StepCall, attempts: int, emitted: list[Emission]) -> _Done | _Failed:
    """Runs the user's function: whatever it raises is its own, but for the engine's signals."""
    shape = shape_of(call.function)
    # Again, as late as possible: the process may have stood still since the step was asked for.
    run_pass.lease.check_alive()
    # The body is no branch of the handler's, whatever tasks it makes.
    tokens = current_branch.set(None), current_body.set((call.place, attempts, emitted))
    try:
        if shape.is_async:
            body: Awaitable[Any] = call.function(*call.args, **call.kwargs)
            result = await body if call.timeout is None else await _within(call.timeout, body)
        else:
            result = await _in_thread(run_pass, call)
        text = encode(result, max_bytes=run_pass.config.max_payload_bytes)
        return _Done(text, decode(text, shape.returns))
    except (EngineSignal, KeyboardInterrupt):
        raise
    except _Interrupted as error:
        return _Failed(error.error)
    except asyncio.CancelledError as error:
        if run_pass.is_unwinding:
            raise
        task = asyncio.current_task()
        # Cancelled by the handler, which has one branch here; or raised by the body itself.
        return _Failed(interrupted(call.place) if task is not None and task.cancelling() else error)
    except _TimeUp as error:
        failed: Exception = TimeoutError(f"the step took longer than its timeout of {call.timeout:g} s")
        if call.retry is not None and not call.retry.retry_unknown:
            failed = _unknown(call.place, f"did not end within its timeout of {call.timeout:g} s")
        return _Failed(failed.with_traceback(error.__traceback__), is_unknown=True)
    except BaseException as error:  # noqa: BLE001 - a step may raise anything
        return _Failed(error)
    finally:
        current_branch.reset(tokens[0])
        current_body.reset(tokens[1])


async def _failed(
    run_pass: RunPass, call: StepCall, record: StepRecord, error: BaseException, branch: Branch | None
) -> Any:
    """Another attempt later; or the error is recorded, and the handler's."""
    retry, attempts = call.retry, record.attempts
    if retry is not None and attempts < retry.max_attempts and _is_worth_it(error, retry):
        if run_pass.tracer is not None and isinstance(error, Exception):
            run_pass.tracer.step_failed(error)
        asked = asked_delay(error)
        until = run_pass.now() + timedelta(seconds=retry.delay(attempts) if asked is None else asked)
        record = record._replace(status=StepStatus.PENDING, error=run_pass.failures.error_text(error))
        # Now, and not when the run rests: the handler may give the wait up, and the attempt was made.
        await run_pass.recorder.record(record)
        return Wait(f"retry of {record.step_id}", record, until=until, retry=True)
    again = await run_pass.recorder.fail_unless_answered(record, error, is_final=retry is not None, branch=branch)
    if isinstance(again, RecordedStep):
        return read(run_pass, call.place, again.output, return_type(call.function))
    if run_pass.tracer is not None:
        # Raised here, in the span of the step, which is to tell of it.
        raise run_pass.failures.raised(again)
    return Raise(again)


def _is_worth_it(error: BaseException, retry: RetryPolicy) -> bool:
    return not isinstance(error, PermanentError | SerializationError) and retry.retries(error)


class _TimeUp(TimeoutError):
    """The step's own timeout, told from a TimeoutError that its body raises."""


class _Interrupted(Exception):
    """A KeyboardInterrupt in a step's thread: an event loop would take it for Ctrl-C, and end."""

    def __init__(self, error: KeyboardInterrupt) -> None:
        super().__init__()
        self.error = error


async def _within(seconds: float, body: Awaitable[Any]) -> Any:
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            return await body
    except TimeoutError:
        if timeout.expired():
            raise _TimeUp from None
        raise


async def _in_thread(run_pass: RunPass, call: StepCall) -> Any:
    # With the database: another one of this process has a run of that number, too.
    key = run_pass.db, run_pass.claim.run_id, call.place.step_id
    if (earlier := _overdue.get(key)) is not None:
        ended = asyncio.wait([asyncio.wrap_future(earlier)])
        await (ended if call.timeout is None else _within(call.timeout, ended))
        run_pass.lease.check_alive()
    try:
        thread = start_thread(caught, call.function, call.args, call.kwargs)
    except RuntimeError:
        # The interpreter ends, and starts no thread any more: the run continues elsewhere, or next time.
        raise run_pass.lease.lose() from None
    try:
        waited = asyncio.wrap_future(thread)
        # Shielded: the thread continues, whatever becomes of the task that waits for it.
        shielded = asyncio.shield(waited)
        result, error = await (shielded if call.timeout is None else _within(call.timeout, shielded))
    except _TimeUp:
        if not thread.done():
            _overdue[key] = thread
            thread.add_done_callback(lambda done: _overdue.pop(key, None) if _overdue.get(key) is done else None)
        thread.add_done_callback(_close_result)
        raise
    if isinstance(error, KeyboardInterrupt):
        # Ctrl-C is raised in the main thread: here the step's own code did.
        raise _Interrupted(error)
    if error is not None:
        raise error
    if not inspect.isawaitable(result):
        return result
    # A plain function that returns a coroutine, as a lambda does: the timeout is for that as well.
    return await (result if call.timeout is None else _within(call.timeout, result))


def _close_result(thread: Future[Any]) -> None:
    """What came too late is not awaited any more; a coroutine would say so, at some other time."""
    if not thread.cancelled() and inspect.iscoroutine(late := thread.result()[0]):
        late.close()


def small_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """What a step was called with, for people who look; not kept when it is large, or cannot be stored."""
    shown = [arg for arg in args if not getattr(arg, "__pgqrs_context__", False)]
    try:
        return encode({"args": shown, **({"kwargs": kwargs} if kwargs else {})}, max_bytes=_MOST_INPUT_BYTES)
    except SerializationError:
        return None


def in_step() -> bool:
    """True in the body of a step."""
    return current_body.get() is not None
