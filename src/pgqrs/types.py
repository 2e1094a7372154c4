"""The nouns that people see: statuses and the frozen records that queries answer with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pgqrs.serialization import decode


class RunStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"


class StepStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class WorkerStatus(StrEnum):
    READY = "READY"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """What a queue holds now. `ready + scheduled + leased + dead` is everything that is live."""

    queue: str
    paused: bool
    ready: int
    scheduled: int
    leased: int
    dead: int
    archived: int
    oldest_ready_age_seconds: float | None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker's row and what it holds."""

    worker_id: int
    queue: str | None
    name: str
    port: int
    status: WorkerStatus
    created_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    heartbeat_age_seconds: float
    leased: int
    info: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was read `max_attempts` times and never archived."""

    id: int
    queue: str
    payload_text: str
    priority: int
    attempts: int
    max_attempts: int
    enqueued_at: datetime
    dead_since: datetime

    @property
    def payload(self) -> Any:
        """What was enqueued. Raises SerializationError if the stored text cannot be read."""
        return decode(self.payload_text)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as lists show it: without its input, output and error."""

    run_id: int
    workflow: str
    status: RunStatus
    last_error: str | None
    error_signature: str | None
    created_at: datetime
    started_at: datetime | None
    paused_at: datetime | None
    completed_at: datetime | None
    updated_at: datetime
    worker_id: int | None
    attempt: int
    max_attempts: int
    priority: int
    idempotency_key: str | None
    parent_run_id: int | None
    dead_letter_of: int | None
    waiting_for: str | None
    deleted_at: datetime | None
    delete_reason: str | None
    attributes_text: str | None
    progress_text: str | None

    @property
    def attributes(self) -> Any:
        return None if self.attributes_text is None else decode(self.attributes_text)

    @property
    def progress(self) -> Any:
        """What `ctx.progress` said last: done, total and note; None when it said nothing."""
        return None if self.progress_text is None else decode(self.progress_text)


@dataclass(frozen=True, slots=True)
class RunCount:
    """How many; `capped` when there are more than were counted."""

    count: int
    capped: bool

    def __str__(self) -> str:
        return f"{self.count:,}+" if self.capped else f"{self.count:,}"


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one workflow that are the same but for what varies in their messages."""

    workflow: str
    error_signature: str | None
    count: int
    first_at: datetime
    last_at: datetime
    example_run_id: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class BulkReason:
    """Why a bulk verb did not do a run: `skipped` when its state does not allow it, else `failed`."""

    run_id: int
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What a bulk verb did, or would do (`dry_run`).

    `matched` and `run_ids` (the first of them, newest first) are what the filter found when it began; `reasons` are
    the first of those that were not done.
    """

    verb: str
    dry_run: bool
    matched: RunCount
    run_ids: tuple[int, ...]
    done: int = 0
    skipped: int = 0
    failed: int = 0
    reasons: tuple[BulkReason, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run."""

    event_id: int
    run_id: int
    event_type: str
    data: Any
    actor: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """What is on record of a step, values decoded."""

    step_id: str
    ordinal: int
    status: StepStatus
    input: Any
    output: Any
    error: Any
    attempts: int
    started_at: datetime | None
    completed_at: datetime | None
