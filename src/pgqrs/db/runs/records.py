"""What one execution wants recorded of its run, as values; and what that tells the run's history."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from pgqrs.audit import AuditPolicy, EventType
from pgqrs.db.runs.history import Emission, RunEvent
from pgqrs.db.tables.messages import Lease
from pgqrs.serialization import decode, encode
from pgqrs.types import RunStatus, StepStatus

# How `waiting_for` begins when the end of any one child shall wake its parent, and not only that of the last.
ANY_OF = "any of "

# A run, its message, and the token under which the caller holds it.
RunFence = tuple[int, int, int]


class StepRecord(NamedTuple):
    """A step as it is to be recorded. All up to `sequence` are columns, in this order; a tuple, as there are many."""

    step_id: str
    ordinal: int
    status: StepStatus
    input: str | None = None
    output: str | None = None
    error: str | None = None
    attempts: int = 1
    # How long its body took: it began that long before it is recorded.
    seconds: float = 0.0
    # Its place among the results that reach the handler; None for what does not end it.
    sequence: int | None = None
    # True when it failed earlier in this pass, and the next attempt of the run shall run it anew.
    is_again: bool = False


# How many of its fields are columns of the statements that record steps; a test holds them against the SQL.
STEP_COLUMNS = StepRecord._fields.index("is_again")


def answered_by(actor: str | None) -> str | None:
    """The `input` of a step that was answered, with the sender: its output is what they said."""
    return None if actor is None else encode({"actor": actor})


class Ended(NamedTuple):
    """SUCCESS or ERROR, for good."""

    status: RunStatus
    output: str | None = None
    error: str | None = None
    last_error: str | None = None
    signature: str | None = None


class Suspended(NamedTuple):
    """The run goes on later: at `run_at`, or `delay` seconds from now, or when what it waits for happens."""

    status: RunStatus
    run_at: datetime | None = None
    delay: float = 0.0
    count_attempt: bool = False
    error: str | None = None
    last_error: str | None = None
    waiting_for: str | None = None
    signals: tuple[str, ...] = ()
    children: bool = False
    # Children of which the end of one is enough.
    any_of: tuple[int, ...] = ()
    # Waits of an earlier pass: a person may have answered one of them while this pass was under way.
    answerable: tuple[str, ...] = ()


class RunWrite(NamedTuple):
    """What one execution wants recorded, all of it or nothing: steps, and perhaps how the pass ended."""

    fence: RunFence
    steps: tuple[StepRecord, ...] = ()
    end: Ended | Suspended | None = None
    emissions: tuple[Emission, ...] = ()
    # Of which workflow, where the writer knows: for whoever counts.
    workflow: str | None = None
    # False when it is known that nobody waits for this run's end.
    has_parent: bool = True
    # True when it was written before and no answer came: it may be there already.
    again: bool = False


def run_events(write: RunWrite) -> list[RunEvent]:
    """What a write tells the history of its run."""
    for step in write.steps:
        if step.error is not None:
            break
    else:
        if write.end is None:
            return []
        if write.end.status is RunStatus.SUCCESS:
            return [RunEvent(write.fence[0], EventType.SUCCEEDED)]
    # A step that is put back so that the next attempt runs it anew has failed, and was told of, before.
    failed = [step for step in write.steps if step.error is not None and not step.is_again]
    told: list[tuple[EventType, dict[str, Any]]] = [
        (EventType.STEP_FAILED, {"step": step.step_id, "attempt": step.attempts, **_short(step)}) for step in failed
    ]
    match write.end:
        case Ended(status=RunStatus.SUCCESS):
            told.append((EventType.SUCCEEDED, {}))
        case Ended(last_error=last_error, signature=signature):
            told.append((EventType.FAILED, {"error": last_error, "signature": signature}))
        case Suspended(status=RunStatus.PAUSED, waiting_for=waiting_for):
            told.append((EventType.PAUSED, {"waiting_for": waiting_for}))
        case Suspended(status=RunStatus.RUNNING, count_attempt=True, delay=delay, last_error=last_error):
            told.append((EventType.RETRIED, {"error": last_error, "delay": delay}))
        case Suspended(status=RunStatus.PENDING, last_error=last_error):
            told.append((EventType.HANDED_BACK, {"error": last_error} if last_error else {}))
        case _:
            # A step's own backoff, or nothing but steps.
            pass
    return [RunEvent(write.fence[0], event, encode(facts) if facts else None) for event, facts in told]


def _short(step: StepRecord) -> dict[str, Any]:
    """Its error without the traceback: the step itself has that."""
    details = decode(step.error or "{}")
    return {name: details[name] for name in ("type", "message") if name in details}


def lease_events(
    leases: Sequence[Lease], worker_id: int, audit_policy: AuditPolicy, *, new: Container[int]
) -> list[RunEvent]:
    """What leases tell the history of their runs; nothing is put together that the journal does not want."""
    told = []
    wants_leases = audit_policy.wants(EventType.LEASED) or audit_policy.wants(EventType.STARTED)
    for lease in leases:
        run_id = cast(int, lease.run_id)
        if lease.taken_from is not None:
            told.append(RunEvent(run_id, EventType.LEASE_LOST, encode({"worker_id": lease.taken_from})))
        if wants_leases:
            facts = encode({"worker_id": worker_id, "attempt": lease.attempts})
            told.append(RunEvent(run_id, EventType.LEASED, facts))
            if run_id in new:
                told.append(RunEvent(run_id, EventType.STARTED, facts))
    return told
