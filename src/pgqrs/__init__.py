"""Durable workflows and queues on the database you already have."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# What type checkers and editors read. It is not executed: see below. A test compares the two.
if TYPE_CHECKING:
    from pgqrs.api.admin import Admin as Admin
    from pgqrs.api.admin import admin as admin
    from pgqrs.api.connect import connect as connect
    from pgqrs.api.connect import connect_with as connect_with
    from pgqrs.api.consumer import Consumer as Consumer
    from pgqrs.api.dispatcher import Dispatcher as Dispatcher
    from pgqrs.api.dispatcher import dispatcher as dispatcher
    from pgqrs.api.message import Message as Message
    from pgqrs.api.metrics import workflow_metrics as workflow_metrics
    from pgqrs.api.peek import MessagePage as MessagePage
    from pgqrs.api.producer import Producer as Producer
    from pgqrs.api.promote import promote as promote
    from pgqrs.api.retention import Retention as Retention
    from pgqrs.api.retention import retention as retention
    from pgqrs.api.run import Run as Run
    from pgqrs.api.schedules import Schedules as Schedules
    from pgqrs.api.schedules import schedules as schedules
    from pgqrs.api.steps import step as step
    from pgqrs.api.store import Store as Store
    from pgqrs.api.using import using as using
    from pgqrs.api.worker import Worker as Worker
    from pgqrs.api.worker import consumer as consumer
    from pgqrs.api.worker import poll_all as poll_all
    from pgqrs.api.worker import worker as worker
    from pgqrs.api.workflow import Workflow as Workflow
    from pgqrs.api.workflow import discover_workflows as discover_workflows
    from pgqrs.api.workflow import workflow as workflow
    from pgqrs.clock import Clock as Clock
    from pgqrs.clock import DatabaseClock as DatabaseClock
    from pgqrs.clock import ManualClock as ManualClock
    from pgqrs.config import Config as Config
    from pgqrs.engine.context import Context as Context
    from pgqrs.engine.plain import SyncContext as SyncContext
    from pgqrs.engine.publishers.http import HttpPublisher as HttpPublisher
    from pgqrs.engine.publishers.notify import NotifyPublisher as NotifyPublisher
    from pgqrs.engine.publishers.plain import CallablePublisher as CallablePublisher
    from pgqrs.engine.publishers.signature import verify_signature as verify_signature
    from pgqrs.engine.routes import Publisher as Publisher
    from pgqrs.errors import AlreadyCompleted as AlreadyCompleted
    from pgqrs.errors import ConfigError as ConfigError
    from pgqrs.errors import ConnectionFailed as ConnectionFailed
    from pgqrs.errors import ExecutionFailed as ExecutionFailed
    from pgqrs.errors import IdempotencyConflict as IdempotencyConflict
    from pgqrs.errors import InvalidArguments as InvalidArguments
    from pgqrs.errors import InvalidTransition as InvalidTransition
    from pgqrs.errors import LeaseLost as LeaseLost
    from pgqrs.errors import NoActiveWorker as NoActiveWorker
    from pgqrs.errors import NonDeterminism as NonDeterminism
    from pgqrs.errors import NotAllowedInStep as NotAllowedInStep
    from pgqrs.errors import NotFound as NotFound
    from pgqrs.errors import NotRecorded as NotRecorded
    from pgqrs.errors import OutcomeUnknown as OutcomeUnknown
    from pgqrs.errors import PauseError as PauseError
    from pgqrs.errors import PayloadTooLarge as PayloadTooLarge
    from pgqrs.errors import PermanentError as PermanentError
    from pgqrs.errors import PgqrsError as PgqrsError
    from pgqrs.errors import PublishFailed as PublishFailed
    from pgqrs.errors import QueueNotFound as QueueNotFound
    from pgqrs.errors import RunCancelled as RunCancelled
    from pgqrs.errors import RunDeleted as RunDeleted
    from pgqrs.errors import RunNotFound as RunNotFound
    from pgqrs.errors import ScheduleNotFound as ScheduleNotFound
    from pgqrs.errors import SchemaMismatch as SchemaMismatch
    from pgqrs.errors import SchemaNotInstalled as SchemaNotInstalled
    from pgqrs.errors import SerializationError as SerializationError
    from pgqrs.errors import StepFailed as StepFailed
    from pgqrs.errors import StorePromoted as StorePromoted
    from pgqrs.errors import TransientError as TransientError
    from pgqrs.errors import WaitTimeout as WaitTimeout
    from pgqrs.errors import WorkflowNotFound as WorkflowNotFound
    from pgqrs.filters import RunFilter as RunFilter
    from pgqrs.reports import BulkReason as BulkReason
    from pgqrs.reports import BulkResult as BulkResult
    from pgqrs.reports import CappedCount as CappedCount
    from pgqrs.reports import DoctorFinding as DoctorFinding
    from pgqrs.reports import DoctorReport as DoctorReport
    from pgqrs.reports import FailureGroup as FailureGroup
    from pgqrs.reports import InvariantReport as InvariantReport
    from pgqrs.reports import Level as Level
    from pgqrs.reports import LiveRuns as LiveRuns
    from pgqrs.reports import OutboxCounts as OutboxCounts
    from pgqrs.reports import OutboxStats as OutboxStats
    from pgqrs.reports import PromotionReport as PromotionReport
    from pgqrs.reports import QueueDepth as QueueDepth
    from pgqrs.reports import QueueMetrics as QueueMetrics
    from pgqrs.reports import RetentionPolicy as RetentionPolicy
    from pgqrs.reports import RetentionReport as RetentionReport
    from pgqrs.reports import ScheduleStats as ScheduleStats
    from pgqrs.reports import StoreStats as StoreStats
    from pgqrs.reports import TableCopy as TableCopy
    from pgqrs.reports import Unjudged as Unjudged
    from pgqrs.reports import Violation as Violation
    from pgqrs.reports import Why as Why
    from pgqrs.reports import WorkerHealth as WorkerHealth
    from pgqrs.reports import WorkflowMetrics as WorkflowMetrics
    from pgqrs.retry import RetryPolicy as RetryPolicy
    from pgqrs.types import Answer as Answer
    from pgqrs.types import DeadLetter as DeadLetter
    from pgqrs.types import Event as Event
    from pgqrs.types import MessageState as MessageState
    from pgqrs.types import OutboxEvent as OutboxEvent
    from pgqrs.types import QueuedMessage as QueuedMessage
    from pgqrs.types import RunStatus as RunStatus
    from pgqrs.types import RunSummary as RunSummary
    from pgqrs.types import Schedule as Schedule
    from pgqrs.types import ScheduleSlot as ScheduleSlot
    from pgqrs.types import SlotState as SlotState
    from pgqrs.types import Step as Step
    from pgqrs.types import StepStatus as StepStatus
    from pgqrs.types import WorkerInfo as WorkerInfo
    from pgqrs.types import WorkerStatus as WorkerStatus

    PyWorkflow = Context
    workflow_decorator = workflow

# A name's module is imported when the name is first asked for: a command that prints its help, or a test run that
# never uses us, does not pay for the whole engine.
_HOMES = {
    "api.admin": "Admin admin",
    "api.connect": "connect connect_with",
    "api.consumer": "Consumer",
    "api.dispatcher": "Dispatcher dispatcher",
    "api.message": "Message",
    "api.metrics": "workflow_metrics",
    "api.peek": "MessagePage",
    "api.producer": "Producer",
    "api.promote": "promote",
    "api.retention": "Retention retention",
    "api.run": "Run",
    "api.schedules": "Schedules schedules",
    "api.steps": "step",
    "api.store": "Store",
    "api.using": "using",
    "api.worker": "Worker consumer poll_all worker",
    "api.workflow": "Workflow discover_workflows workflow workflow=workflow_decorator",
    "clock": "Clock DatabaseClock ManualClock",
    "config": "Config",
    "engine.context": "Context Context=PyWorkflow",
    "engine.plain": "SyncContext",
    "engine.publishers.http": "HttpPublisher",
    "engine.publishers.notify": "NotifyPublisher",
    "engine.publishers.plain": "CallablePublisher",
    "engine.publishers.signature": "verify_signature",
    "engine.routes": "Publisher",
    "errors": """
        AlreadyCompleted ConfigError ConnectionFailed ExecutionFailed IdempotencyConflict InvalidArguments
        InvalidTransition LeaseLost NoActiveWorker NonDeterminism NotAllowedInStep NotFound NotRecorded OutcomeUnknown
        PauseError
        PayloadTooLarge
        PermanentError PgqrsError PublishFailed QueueNotFound RunCancelled RunDeleted RunNotFound ScheduleNotFound
        SchemaMismatch SchemaNotInstalled SerializationError StepFailed StorePromoted TransientError
        WaitTimeout WorkflowNotFound
    """,
    "filters": "RunFilter",
    "reports": """
        BulkReason BulkResult CappedCount DoctorFinding DoctorReport FailureGroup InvariantReport Level LiveRuns
        OutboxCounts OutboxStats PromotionReport QueueDepth QueueMetrics RetentionPolicy RetentionReport
        ScheduleStats StoreStats TableCopy Unjudged Violation Why WorkerHealth WorkflowMetrics
    """,
    "retry": "RetryPolicy",
    "types": """
        Answer DeadLetter Event MessageState OutboxEvent QueuedMessage RunStatus RunSummary Schedule ScheduleSlot
        SlotState Step StepStatus WorkerInfo WorkerStatus
    """,
}
# `Context=PyWorkflow`: known outside by another name.
_NAMES = {
    known: (f"{__name__}.{home}", name)
    for home, names in _HOMES.items()
    for name, _, other in (each.partition("=") for each in names.split())
    for known in (other or name,)
}

if not TYPE_CHECKING:
    __all__ = ["__version__", *sorted(_NAMES)]  # noqa: PLE0604 - they are strings

    def __getattr__(name: str) -> Any:
        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home, attribute = _NAMES[name]
        value = globals()[name] = getattr(import_module(home), attribute)
        return value

    def __dir__() -> list[str]:
        return __all__
