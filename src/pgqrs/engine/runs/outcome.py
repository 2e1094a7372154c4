"""How one pass over a handler ended, as one value; the only place where exceptions become decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from pgqrs.db.runs.records import Ended, StepRecord, Suspended
from pgqrs.db.tables.runs import RunRow
from pgqrs.engine.recorded_errors import message_of, traceback_of
from pgqrs.errors import (
    InvalidArguments,
    NonDeterminism,
    PauseError,
    PermanentError,
    SerializationError,
    TransientError,
)
from pgqrs.retry import RetryPolicy
from pgqrs.serialization import encode, object_in
from pgqrs.text.durations import LONGEST_SECONDS
from pgqrs.text.error_signature import error_signature
from pgqrs.types import RunStatus

_MOST_MESSAGE = 2_000
# Recorded as the error of a run, and asked for by filters: it never changes.
NO_HANDLER = "no_handler_registered"
_LONGEST_WITHOUT_HANDLER = 30.0


class Outcome(NamedTuple):
    """What is to be recorded of a pass: its last steps, and how it ended."""

    end: Ended | Suspended
    steps: tuple[StepRecord, ...] = ()


def failure(
    error: BaseException,
    *,
    attempt: int,
    policy: RetryPolicy,
    pause_seconds: float,
    lease_seconds: float,
    step_ids: Sequence[str] = (),
    compensated_by: Sequence[str] = (),
    is_ours: bool = False,
    raised_as: tuple[str, str] | None = None,
) -> Ended | Suspended:
    """What an exception that left the handler means for its run; `is_ours` is the engine's own trouble.

    `step_ids` are the steps that it came from: a restart opens these again. `compensated_by` are those with which the
    handler made up for it. `raised_as` names the class that the error stands in for.
    """
    text, summary = described(error, step_ids, compensated_by)
    match error:
        case _ if not is_ours and (pause := asked_pause(error)) is not None:
            return Suspended(RunStatus.PAUSED, delay=pause_seconds, waiting_for=message_of(pause) or "resume")
        case NonDeterminism() if is_ours:
            return Suspended(
                RunStatus.PAUSED,
                delay=pause_seconds,
                waiting_for=f"parked: {message_of(error)}"[:_MOST_MESSAGE],
                last_error=summary,
            )
        case _ if is_permanent(error):
            return _end(error, text, summary, step_ids)
        case _ if attempt >= policy.max_attempts or not (is_ours or policy.retries(error, raised_as=raised_as)):
            return _end(error, text, summary, step_ids)
        case _ if is_ours:
            # Something could not be recorded. Had the worker died of it, the run would continue after a lease: it
            # shall not wait for longer because the worker lived.
            return _retry(min(policy.delay(attempt), lease_seconds), text, summary)
        case _:
            asked = asked_delay(error)
            return _retry(policy.delay(attempt) if asked is None else asked, text, summary)


def is_permanent(error: BaseException) -> bool:
    """True when no attempt is to follow; of a group, when one of its errors says so."""
    return any(isinstance(each, PermanentError | SerializationError | InvalidArguments) for each in _single(error))


def is_transient(error: BaseException) -> bool:
    """True when the error asks for another attempt; of a group, when all of its errors do."""
    return all(isinstance(each, TransientError) for each in _single(error))


def asked_pause(error: BaseException) -> PauseError | None:
    """The error that asks for a pause; of a group the first, when all of its errors ask for one."""
    errors = list(_single(error))
    pauses = [each for each in errors if isinstance(each, PauseError)]
    return pauses[0] if len(pauses) == len(errors) else None


def asked_delay(error: BaseException) -> float | None:
    """The seconds after which the error wants to be tried again, the longest of a group; None: the usual backoff."""
    asked = []
    for each in _single(error):
        match each:
            # A handler that asks for more, or for no number at all, gets the usual backoff.
            case TransientError(retry_after=float() | int() as seconds) if 0 <= seconds <= LONGEST_SECONDS:
                asked.append(float(seconds))
    return max(asked, default=None)


def _single(error: BaseException) -> Iterator[BaseException]:
    """The error; of a group, each that it is made of."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for part in error.exceptions:
        yield from _single(part)


def without_handler(run: RunRow, *, now: datetime, grace_seconds: float) -> Ended | Suspended:
    """A run that this worker was given and has no code for: perhaps another one has, or will have soon."""
    known = object_in(run.error) if run.last_error == NO_HANDLER else {}
    since = known.get("since")
    if not isinstance(since, datetime) or since.tzinfo is None:
        since = now
    waited = (now - since).total_seconds()
    error = encode({"type": "NoHandler", "message": f"no worker has a handler for {run.workflow!r}", "since": since})
    if waited >= grace_seconds:
        return Ended(RunStatus.ERROR, error=error, last_error=NO_HANDLER, signature="NoHandler")
    # Twice as long each time, so that it does not go round and round, but in time for the end of the grace.
    delay = min(max(1.0, waited), _LONGEST_WITHOUT_HANDLER, grace_seconds - waited)
    return Suspended(RunStatus.PENDING, delay=delay, error=error, last_error=NO_HANDLER)


def _end(error: BaseException, text: str, summary: str, step_ids: Sequence[str]) -> Ended:
    signature = error_signature(type(error).__name__, message_of(error), step_ids[0] if step_ids else None)
    return Ended(RunStatus.ERROR, error=text, last_error=summary, signature=signature)


def _retry(seconds: float, text: str, summary: str) -> Suspended:
    return Suspended(RunStatus.RUNNING, delay=float(seconds), count_attempt=True, error=text, last_error=summary)


def described(
    error: BaseException, step_ids: Sequence[str] = (), compensated_by: Sequence[str] = ()
) -> tuple[str, str]:
    """An error as JSON for the record, and as one line for people.

    The list of steps is recorded when it is empty, too: it tells a restart that no step is at fault. Without a list,
    as older versions recorded errors, every failed step would be reopened.
    """
    name = type(error).__name__
    message = message_of(error)
    trace = traceback_of(error)
    known: dict[str, object] = {"type": name, "message": message, "traceback": trace, "steps": list(step_ids)}
    if compensated_by:
        known["compensated_by"] = list(compensated_by)
    text = encode(known)
    return text, f"{name}: {message}" if message else name
