"""Durable workflows and queues on the database you already have."""

from pgqrs.api.admin import Admin, admin
from pgqrs.api.connect import connect, connect_with
from pgqrs.api.consumer import Consumer, Message
from pgqrs.api.dispatcher import Dispatcher, dispatcher
from pgqrs.api.producer import Producer
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
from pgqrs.retry import RetryPolicy
from pgqrs.types import (
    DeadLetter,
    OutboxCounts,
    OutboxEvent,
    QueueMetrics,
    RunStatus,
    Schedule,
    ScheduleSlot,
    SlotState,
    StepStatus,
    WorkerInfo,
    WorkerStatus,
)

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AlreadyCompleted",
    "CallablePublisher",
    "Clock",
    "Config",
    "ConfigError",
    "ConnectionFailed",
    "Consumer",
    "DatabaseClock",
    "DeadLetter",
    "Dispatcher",
    "ExecutionFailed",
    "HttpPublisher",
    "IdempotencyConflict",
    "InvalidTransition",
    "LeaseLost",
    "ManualClock",
    "Message",
    "NoActiveWorker",
    "NonDeterminism",
    "NotFound",
    "NotifyPublisher",
    "OutboxCounts",
    "OutboxEvent",
    "PauseError",
    "PayloadTooLarge",
    "PermanentError",
    "PgqrsError",
    "Producer",
    "PublishFailed",
    "Publisher",
    "PyWorkflow",
    "QueueMetrics",
    "QueueNotFound",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunDeleted",
    "RunNotFound",
    "RunStatus",
    "Schedule",
    "ScheduleNotFound",
    "ScheduleSlot",
    "Schedules",
    "SchemaMismatch",
    "SchemaNotInstalled",
    "SerializationError",
    "SlotState",
    "StepFailed",
    "StepStatus",
    "Store",
    "TransientError",
    "WaitTimeout",
    "Worker",
    "WorkerInfo",
    "WorkerStatus",
    "Workflow",
    "WorkflowNotFound",
    "__version__",
    "admin",
    "connect",
    "connect_with",
    "consumer",
    "discover_workflows",
    "dispatcher",
    "poll_all",
    "schedules",
    "step",
    "using",
    "verify_signature",
    "worker",
    "workflow",
    "workflow_decorator",
]
