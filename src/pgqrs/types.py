"""The nouns that people see: statuses, the frozen records that queries answer with, and what other calls give."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic

from pgqrs.inputs import given
from pgqrs.result_types import Child as Child
from pgqrs.result_types import PlainChild as PlainChild
from pgqrs.result_types import PlainData as PlainData
from pgqrs.result_types import Result_co as Result_co
from pgqrs.result_types import Returning as Returning
from pgqrs.serialization import decode

if TYPE_CHECKING:
    # Type checkers know it without its being installed. With a default, `pgqrs.Run` alone is a `Run[Any]`.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class RunStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"


# In this order where people see them.
ENDED = (RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.CANCELLED)


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

    @property
    def can_be_told_to_stop(self) -> bool:
        """A consumer of a plain queue is a part of somebody's program, which does not ask."""
        return self.info.get("handlers") is not None


class MessageState(StrEnum):
    """What a live message is doing. They are told apart by its times and counts: nothing is stored."""

    READY = "ready"
    SCHEDULED = "scheduled"
    LEASED = "leased"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A live message, as whoever looks into its queue sees it."""

    id: int
    queue: str
    payload_text: str
    # Of the run whose turn it is, in the queue of a workflow.
    run_id: int | None
    priority: int
    state: MessageState
    # When it may be taken (again).
    visible_after: datetime
    enqueued_at: datetime
    attempts: int
    max_attempts: int
    lease_token: int
    leased_by: int | None

    @property
    def payload(self) -> Any:
        """What was enqueued. Raises SerializationError if the stored text cannot be read."""
        return decode(self.payload_text)

    @property
    def is_exhausted(self) -> bool:
        """It was read as often as it may be: it is in its last lease, or dead."""
        return self.attempts >= self.max_attempts


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
class Answer(Generic[T]):
    """What a wait was given, and by whom: `await ctx.wait_for("approval", type=pgqrs.Answer)`.

    `actor` is the sender as pgqrs knows them: the token's name, the command line's user, or what your code passed.
    It stands beside `value`, which the sender writes: no payload can claim another sender.
    """

    value: T
    actor: str | None


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
        return given(self.params_text)

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


# Types that calls return and programs do not make themselves, so that each has a name in this module. The layers
# above define them; they are imported when they are first asked for, as in `pgqrs` itself.
if TYPE_CHECKING:
    from pgqrs.api.connect import Connecting as Connecting
    from pgqrs.api.dispatcher import Dispatcher as Dispatcher
    from pgqrs.api.inline import RunContext as RunContext
    from pgqrs.api.operations.admin import Admin as Admin
    from pgqrs.api.operations.outbox_admin import OutboxAdmin as OutboxAdmin
    from pgqrs.api.operations.queue_peek import MessagePage as MessagePage
    from pgqrs.api.operations.search import FailureList as FailureList
    from pgqrs.api.operations.search import SummaryPage as SummaryPage
    from pgqrs.api.retention import Retention as Retention
    from pgqrs.api.schedules import Schedules as Schedules
    from pgqrs.api.steps import AsyncStep as AsyncStep
    from pgqrs.api.steps import PlainStep as PlainStep
    from pgqrs.api.trigger import Trigger as Trigger
    from pgqrs.api.using import BlockingEnlistment as BlockingEnlistment
    from pgqrs.api.using import Enlistment as Enlistment
    from pgqrs.api.worker import WorkerBuilder as WorkerBuilder
    from pgqrs.api.workflow import AsyncWorkflow as AsyncWorkflow
    from pgqrs.api.workflow import DecoratedWorkflow as DecoratedWorkflow
    from pgqrs.api.workflow import PlainWorkflow as PlainWorkflow
    from pgqrs.api.workflow_verbs import RunPage as RunPage
    from pgqrs.clock import Clock as Clock
    from pgqrs.clock import DatabaseClock as DatabaseClock
    from pgqrs.db.database import Transaction as Transaction
    from pgqrs.engine.ctx.race import First as First
    from pgqrs.engine.ctx.run_log import RunLog as RunLog
    from pgqrs.engine.outbox.routes import Publisher as Publisher

_GIVEN = {
    "Admin": "api.operations.admin",
    "Connecting": "api.connect",
    "RunContext": "api.inline",
    "Dispatcher": "api.dispatcher",
    "OutboxAdmin": "api.operations.outbox_admin",
    "MessagePage": "api.operations.queue_peek",
    "Retention": "api.retention",
    "Schedules": "api.schedules",
    "FailureList": "api.operations.search",
    "SummaryPage": "api.operations.search",
    "AsyncStep": "api.steps",
    "PlainStep": "api.steps",
    "Trigger": "api.trigger",
    "BlockingEnlistment": "api.using",
    "Enlistment": "api.using",
    "WorkerBuilder": "api.worker",
    "AsyncWorkflow": "api.workflow",
    "DecoratedWorkflow": "api.workflow",
    "PlainWorkflow": "api.workflow",
    "RunPage": "api.workflow_verbs",
    "Clock": "clock",
    "DatabaseClock": "clock",
    "Transaction": "db.database",
    "First": "engine.ctx.race",
    "Publisher": "engine.outbox.routes",
    "RunLog": "engine.ctx.run_log",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _GIVEN:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"pgqrs.{_GIVEN[name]}"), name)
