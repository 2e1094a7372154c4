"""The nouns that people see: statuses and the frozen records that queries answer with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
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
class OutboxEvent:
    """Something that is to be published, as publishers and `admin.outbox` see it.

    `id` is the same however often the event is sent: receivers deduplicate by it.
    """

    id: str
    type: str
    source: str
    run_id: int
    workflow: str
    payload_text: str
    created_at: datetime
    # How often it was tried and failed.
    attempts: int
    last_error: str | None
    published_at: datetime | None
    dead_at: datetime | None
    # Its place in the order of the outbox: grows within a run.
    event_id: int

    @property
    def subject(self) -> str:
        return f"{self.workflow}/{self.run_id}"

    @property
    def payload(self) -> Any:
        """What was emitted. Raises SerializationError if the stored text cannot be read."""
        return decode(self.payload_text)


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """What the outbox holds now. `pending` are neither published nor dead; `failing` of them were tried before."""

    pending: int
    failing: int
    dead: int
    published: int
    oldest_pending_age_seconds: float | None


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
class CappedCount:
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
    matched: CappedCount
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


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """What is live in a queue; numbers are at least so much when `capped`."""

    queue: str
    paused: bool
    ready: int
    scheduled: int
    leased: int
    dead: int
    oldest_ready_age_seconds: float | None
    capped: bool


@dataclass(frozen=True, slots=True)
class WorkflowMetrics:
    """How a workflow fares: its runs now, and those that ended in SUCCESS or ERROR in the window.

    `success_rate` is in percent. Durations go from a run's first start to its end; waits from its creation to its
    first start. When `ended` is capped, rates and durations are those of the newest runs that were counted.
    """

    workflow: str
    window: timedelta
    runs: dict[RunStatus, CappedCount]
    ended: CappedCount
    success_rate: float | None
    avg_duration: timedelta | None
    p50_duration: timedelta | None
    p95_duration: timedelta | None
    p50_wait: timedelta | None
    p95_wait: timedelta | None
    queue: QueueDepth
    live_workers: int

    @property
    def queue_depth(self) -> int:
        """Runs that could be worked on now, if there were a worker."""
        return self.queue.ready

    @property
    def oldest_ready_age_seconds(self) -> float | None:
        return self.queue.oldest_ready_age_seconds


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """Workers by health: `stale` ones gave no sign of life within three leases, and never said goodbye."""

    ready: int
    stale: int
    stopped: int


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """The runs of a workflow that have not ended."""

    workflow: str
    pending: CappedCount
    running: CappedCount
    paused: CappedCount


@dataclass(frozen=True, slots=True)
class OutboxStats:
    unpublished: CappedCount
    dead: CappedCount


@dataclass(frozen=True, slots=True)
class ScheduleStats:
    total: int
    paused: int
    next_slot_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoreStats:
    """A whole store at a glance. `runs` counts deleted ones, too; `database_bytes` is None for one in memory."""

    schema_version: int
    runs: dict[RunStatus, CappedCount]
    live: tuple[LiveRuns, ...]
    queues: tuple[QueueDepth, ...]
    workers: WorkerHealth
    outbox: OutboxStats
    schedules: ScheduleStats
    database_bytes: int | None


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What is deleted when it is older than `keep`; '' stands for every workflow (or queue), every status."""

    what: str
    workflow: str
    status: str
    keep: timedelta


@dataclass(frozen=True, slots=True)
class RetentionCount:
    """What came of one policy: how many rows it deleted (or would), and how many are old enough but must wait."""

    policy: RetentionPolicy
    count: int
    # Children whose parent goes on, runs with something unpublished, rows that somebody had locked.
    held_back: int
    # Counting stopped there: it may be more.
    capped: bool = False

    def __str__(self) -> str:
        who = " ".join(part for part in (self.policy.what, self.policy.workflow, self.policy.status) if part)
        more = "more than " if self.capped else ""
        return f"{who}: {more}{self.count:,}" + (f" ({self.held_back:,} must wait)" if self.held_back else "")


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What retention did or, after a dry run, would do."""

    dry_run: bool
    counts: tuple[RetentionCount, ...]

    @property
    def total(self) -> int:
        return sum(each.count for each in self.counts)

    def __str__(self) -> str:
        return "\n".join(map(str, self.counts)) or "no policy: nothing is ever deleted"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: what it triggers and when, and how far it is."""

    schedule_id: int
    name: str
    workflow: str
    kind: str
    cron: str | None
    every_seconds: float | None
    at: datetime | None
    timezone: str
    params_text: str | None
    options_text: str | None
    overlap: str
    catch_up: str
    catch_up_limit: int
    jitter_seconds: float
    created_at: datetime
    updated_at: datetime
    paused_at: datetime | None
    # Slots up to here are done with.
    slots_after: datetime
    last_slot_at: datetime | None
    last_run_id: int | None
    # After an error, shown in `last_error`: the next try.
    next_slot_at: datetime | None
    last_error: str | None

    @property
    def params(self) -> Any:
        """What each run gets. Raises SerializationError if the stored text cannot be read."""
        return None if self.params_text is None else decode(self.params_text)

    @property
    def options(self) -> dict[str, Any]:
        """priority, max_attempts and attributes of each run, where they were given."""
        return {} if self.options_text is None else decode(self.options_text, dict[str, Any])

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


class SlotState(StrEnum):
    FIRED = "fired"
    QUEUED = "queued"  # waits until the run before it has ended
    SKIPPED = "skipped"  # the run before it had not ended
    MISSED = "missed"  # nobody looked in time, and the catch-up policy lets it go


@dataclass(frozen=True, slots=True)
class ScheduleSlot:
    """One point in time of a schedule, and what became of it."""

    slot_at: datetime
    state: SlotState
    run_id: int | None
    created_at: datetime
