"""The body of a step: the user's function, on the event loop or in a thread, within its timeout."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any, NamedTuple

from pgqrs.db.runs.history import Emission
from pgqrs.engine.definitions.handlers import shape_of
from pgqrs.engine.replay.branches import BranchPlace, StepCall, current_body, current_branch
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.unwinding import EngineSignal
from pgqrs.engine.threads import caught, start_thread
from pgqrs.errors import OutcomeUnknown, SerializationError
from pgqrs.serialization import decode, encode

# Bodies of plain steps whose time was up: a thread cannot be ended, so the next attempt waits for it.
_overdue: dict[tuple[object, int, str], Future[Any]] = {}


class BodyDone(NamedTuple):
    """What the body returned, as it is recorded, and as it comes back."""

    text: str
    value: Any


class BodyFailed(NamedTuple):
    """What the body raised; `is_unknown` when it may have done its work all the same."""

    error: BaseException
    is_unknown: bool = False


async def run_body(
    run_pass: RunPass, call: StepCall, attempts: int, emitted: list[Emission]
) -> BodyDone | BodyFailed:
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
        return stored_result(call.place.step_id, result, shape.returns, max_bytes=run_pass.config.max_payload_bytes)
    except (EngineSignal, KeyboardInterrupt):
        raise
    except _Interrupted as error:
        return BodyFailed(error.error)
    except asyncio.CancelledError as error:
        if run_pass.is_unwinding:
            raise
        if (task := asyncio.current_task()) is not None and task.cancelling():
            # By a deadline around the step: it has no outcome.
            raise
        return BodyFailed(error)
    except _TimeUp as error:
        failed: Exception = TimeoutError(f"the step took longer than its timeout of {call.timeout:g} s")
        if call.retry is not None and not call.retry.retry_unknown:
            failed = unknown_outcome(call.place, f"did not end within its timeout of {call.timeout:g} s")
        return BodyFailed(failed.with_traceback(error.__traceback__), is_unknown=True)
    except BaseException as error:  # noqa: BLE001 - a step may raise anything
        return BodyFailed(error)
    finally:
        current_branch.reset(tokens[0])
        current_body.reset(tokens[1])


def stored_result(step_id: str, result: Any, as_type: Any, *, max_bytes: int) -> BodyDone:
    """As it is recorded, and as it comes back.

    Not with `naming`, a context manager: that would take a tenth of the time of a step.
    """
    try:
        text = encode(result, max_bytes=max_bytes)
        return BodyDone(text, decode(text, as_type))
    except SerializationError as error:
        error.about(f"the result of step {step_id!r}")
        raise


def unknown_outcome(place: BranchPlace, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"step {place.step_id!r} {why}, and whether it did its work is unknown",
        hint="its policy says retry_unknown=False, "
        "so it does not run again: find out, then restart the run or catch this error",
    )


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
