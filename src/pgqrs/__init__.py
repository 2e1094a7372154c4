"""Durable workflows and queues on the database you already have."""

from pgqrs.api.admin import Admin, admin
from pgqrs.api.connect import connect, connect_with
from pgqrs.api.consumer import Consumer
from pgqrs.api.dispatcher import Dispatcher, dispatcher
from pgqrs.api.message import Message
from pgqrs.api.metrics import workflow_metrics
from pgqrs.api.producer import Producer
from pgqrs.api.retention import Retention, retention
from pgqrs.api.run import Run
from pgqrs.api.schedules import Schedules, schedules
from pgqrs.api.store import Store
from pgqrs.api.using import using
from pgqrs.api.worker import Worker, consumer, poll_all, worker
from pgqrs.api.workflow import Workflow, discover_workflows, step, workflow
from pgqrs.api.workflow import workflow as workflow_decorator
from pgqrs.clock import Clock, DatabaseClock, ManualClock
from pgqrs.config import Config
from pgqrs.engine.context import Context as PyWorkflow
from pgqrs.engine.publishers.http import HttpPublisher
from pgqrs.engine.publishers.notify import NotifyPublisher
from pgqrs.engine.publishers.plain import CallablePublisher
from pgqrs.engine.publishers.signature import verify_signature
from pgqrs.engine.routes import Publisher
from pgqrs.errors import (
    AlreadyCompleted,
    ConfigError,
    ConnectionFailed,
    ExecutionFailed,
    IdempotencyConflict,
    InvalidTransition,
    LeaseLost,
    NoActiveWorker,
    NonDeterminism,
    NotFound,
    PauseError,
    PayloadTooLarge,
    PermanentError,
    PgqrsError,
    PublishFailed,
    QueueNotFound,
    RunCancelled,
    RunDeleted,
    RunNotFound,
    ScheduleNotFound,
    SchemaMismatch,
    SchemaNotInstalled,
    SerializationError,
    StepFailed,
    TransientError,
    WaitTimeout,
    WorkflowNotFound,
)
from pgqrs.filters import RunFilter
from pgqrs.reports import (
    BulkReason,
    BulkResult,
    CappedCount,
    FailureGroup,
    InvariantReport,
    LiveRuns,
    OutboxCounts,
    OutboxStats,
    QueueDepth,
    QueueMetrics,
    RetentionPolicy,
    RetentionReport,
    ScheduleStats,
    StoreStats,
    Unjudged,
    Violation,
    Why,
    WorkerHealth,
    WorkflowMetrics,
)
from pgqrs.retry import RetryPolicy
from pgqrs.types import (
    DeadLetter,
    Event,
    OutboxEvent,
    RunStatus,
    RunSummary,
    Schedule,
    ScheduleSlot,
    SlotState,
    Step,
    StepStatus,
    WorkerInfo,
    WorkerStatus,
)

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AlreadyCompleted",
    "BulkReason",
    "BulkResult",
    "CallablePublisher",
    "CappedCount",
    "Clock",
    "Config",
    "ConfigError",
    "ConnectionFailed",
    "Consumer",
    "DatabaseClock",
    "DeadLetter",
    "Dispatcher",
    "Event",
    "ExecutionFailed",
    "FailureGroup",
    "HttpPublisher",
    "IdempotencyConflict",
    "InvalidTransition",
    "InvariantReport",
    "LeaseLost",
    "LiveRuns",
    "ManualClock",
    "Message",
    "NoActiveWorker",
    "NonDeterminism",
    "NotFound",
    "NotifyPublisher",
    "OutboxCounts",
    "OutboxEvent",
    "OutboxStats",
    "PauseError",
    "PayloadTooLarge",
    "PermanentError",
    "PgqrsError",
    "Producer",
    "PublishFailed",
    "Publisher",
    "PyWorkflow",
    "QueueDepth",
    "QueueMetrics",
    "QueueNotFound",
    "Retention",
    "RetentionPolicy",
    "RetentionReport",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunDeleted",
    "RunFilter",
    "RunNotFound",
    "RunStatus",
    "RunSummary",
    "Schedule",
    "ScheduleNotFound",
    "ScheduleSlot",
    "ScheduleStats",
    "Schedules",
    "SchemaMismatch",
    "SchemaNotInstalled",
    "SerializationError",
    "SlotState",
    "Step",
    "StepFailed",
    "StepStatus",
    "Store",
    "StoreStats",
    "TransientError",
    "Unjudged",
    "Violation",
    "WaitTimeout",
    "Why",
    "Worker",
    "WorkerHealth",
    "WorkerInfo",
    "WorkerStatus",
    "Workflow",
    "WorkflowMetrics",
    "WorkflowNotFound",
    "__version__",
    "admin",
    "connect",
    "connect_with",
    "consumer",
    "discover_workflows",
    "dispatcher",
    "poll_all",
    "retention",
    "schedules",
    "step",
    "using",
    "verify_signature",
    "worker",
    "workflow",
    "workflow_decorator",
    "workflow_metrics",
]
