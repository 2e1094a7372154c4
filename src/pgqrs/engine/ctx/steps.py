"""A step: its body, then its record. What the body raises is the user's; what the record runs into is the engine's.

    recorded? return or raise that : run the body -> SUCCESS, or ERROR, or a Wait for the next attempt

The value or error that the handler gets is the recorded one, decoded, in the first pass too: a replay cannot differ.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, NamedTuple

from pgqrs.db.runs.history import Emission
from pgqrs.db.runs.records import StepRecord
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.ctx.recorded_results import read, replayed
from pgqrs.engine.ctx.step_body import BodyDone, BodyFailed, run_body, unknown_outcome
from pgqrs.engine.definitions.handlers import return_type
from pgqrs.engine.instrumentation import Tracer
from pgqrs.engine.recorded_errors import message_of
from pgqrs.engine.replay.branch_tasks import BranchTask
from pgqrs.engine.replay.branches import Branch, BranchPlace, StepCall, current_body, current_branch
from pgqrs.engine.replay.interruption import was_interrupted
from pgqrs.engine.replay.refusals import outlasted
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.suspension import Wait
from pgqrs.engine.replay.task_factory import outside
from pgqrs.engine.runs.outcome import asked_delay, asked_pause, is_permanent
from pgqrs.errors import (
    OutcomeUnknown,
    PermanentError,
    SerializationError,
)
from pgqrs.retry import RetryPolicy
from pgqrs.serialization import encode
from pgqrs.text.durations import shown as shown_value
from pgqrs.types import StepStatus

_MOST_INPUT_BYTES = 4096


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
            body.cancel()
            raise run_pass.lease.halt(outlasted(step_id)) from None
        raise


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
    if unknown is None:
        done = await run_body(run_pass, call, attempts, emitted)
    else:
        done = BodyFailed(unknown, is_unknown=True)
    took = run_pass.seconds() - began
    if isinstance(done, BodyDone):
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
    if (pause := asked_pause(error)) is not None:
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, attempts=attempts)
        return Wait(message_of(pause) or place.step_id, record)
    if is_unknown and retry is not None and not retry.retry_unknown:
        call = call._replace(retry=retry.with_attempts(1))
    record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR, attempts=attempts, seconds=took)
    return await _failed(run_pass, call, record, error, branch)


async def _begun_before(run_pass: RunPass, place: BranchPlace, attempts: int) -> OutcomeUnknown | None:
    """Notes that the body begins; or finds that it began before, which is all that is known of it."""
    recorded = run_pass.claim.steps.get(place.step_id)
    if recorded is not None and recorded.status is StepStatus.RUNNING:
        return unknown_outcome(place, "began in an earlier attempt")
    await run_pass.recorder.record(StepRecord(place.step_id, place.ordinal, StepStatus.RUNNING, attempts=attempts))
    return None


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
    return not is_permanent(error) and retry.retries(error)


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
