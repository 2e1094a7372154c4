"""What people are told in numbers: counts, metrics, what a bulk verb or retention did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from pgqrs.types import RunStatus


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
class OutboxCounts:
    """What the outbox holds now. `pending` are neither published nor dead; `failing` of them were tried before."""

    pending: int
    failing: int
    dead: int
    published: int
    oldest_pending_age_seconds: float | None


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
    # How many in each 24th of the time that was asked about, the oldest first.
    over_time: tuple[int, ...] = ()


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
    """Workers by health: `stale` ones sent no heartbeat for three leases, and have not shut down."""

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
class Why:
    """Why a run does not move, or that it does: the cause as a word, one sentence for people, and what to do."""

    run_id: int
    cause: str
    sentence: str
    evidence: tuple[str, ...] = ()
    # The command that gets it going again; None when time or a worker will.
    fix: str | None = None
    # When that changes by itself.
    until: datetime | None = None

    def __str__(self) -> str:
        return f"run {self.run_id}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A fact that does not hold of a database: its code (`I5`), what breaks it (some of it), and how much does."""

    code: str
    fact: str
    what: tuple[str, ...]
    count: CappedCount

    def __str__(self) -> str:
        shown = ", ".join(self.what)
        more = ", ..." if self.count.capped or self.count.count > len(self.what) else ""
        return f"{self.code}: not true that {self.fact} ({self.count}): {shown}{more}"


@dataclass(frozen=True, slots=True)
class Unjudged:
    """An invariant, or a part of one, that a database cannot tell about."""

    code: str
    reason: str


class InvariantReport(list[Violation]):
    """The violations, none when all is well; `unjudged` says what could not be told."""

    def __init__(self, violations: Iterable[Violation] = (), unjudged: tuple[Unjudged, ...] = ()) -> None:
        super().__init__(violations)
        self.unjudged = unjudged

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "all that can be judged holds"


@dataclass(frozen=True, slots=True)
class TableCopy:
    """One table of a promotion. The checksum is over every value of every row, and the same on both sides."""

    table: str
    rows: int
    # Of the texts and numbers in it, about.
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class PromotionReport:
    """What a promotion copied, or would (`dry_run`)."""

    promotion: str
    source: str
    target: str
    schema: str
    dry_run: bool
    tables: tuple[TableCopy, ...]
    # Messages that somebody held: they are due again when the lease that they had is over, the attempt not counted.
    handed_back: int = 0
    # An earlier call had done it all.
    already_done: bool = False

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.tables)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.tables)

    def __str__(self) -> str:
        what = f"{self.rows:,} rows from {self.source} to {self.target}, schema {self.schema}"
        if self.already_done:
            return f"{self.source} was promoted to {self.target}, schema {self.schema}, before: nothing was done"
        return f"would copy {what}" if self.dry_run else f"copied {what}, and verified them"


class Level(StrEnum):
    """How a finding of the doctor is to be taken."""

    OK = "ok"
    WARN = "warn"  # something to look at, before it becomes worse
    BAD = "bad"  # something is wrong, or what is promised does not hold


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was looked at: its code (`pgqrs explain CODE`), how it is, why that matters, what to do."""

    code: str
    level: Level
    what: str
    why: str | None = None
    fix: str | None = None

    def __str__(self) -> str:
        return f"{self.level}: {self.what}"


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Everything that was looked at, in the order in which one would mend it."""

    findings: tuple[DoctorFinding, ...]
    # That of the worst finding.
    level: Level = field(init=False)

    def __post_init__(self) -> None:
        worst = max((each.level for each in self.findings), key=list(Level).index, default=Level.OK)
        object.__setattr__(self, "level", worst)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))
