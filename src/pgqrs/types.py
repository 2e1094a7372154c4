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
