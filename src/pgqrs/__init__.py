"""Durable workflows and queues on the database you already have."""

from pgqrs.api.admin import Admin, admin
from pgqrs.api.connect import connect, connect_with
from pgqrs.api.consumer import Consumer, Message
from pgqrs.api.producer import Producer
from pgqrs.api.retention import Retention, retention
from pgqrs.api.run import Run
from pgqrs.api.store import Store
from pgqrs.api.using import using
from pgqrs.api.worker import Worker, consumer, poll_all, worker
from pgqrs.api.workflow import Workflow, discover_workflows, step, workflow
from pgqrs.api.workflow import workflow as workflow_decorator
from pgqrs.clock import Clock, DatabaseClock, ManualClock
from pgqrs.config import Config
from pgqrs.engine.context import Context as PyWorkflow
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
    QueueNotFound,
    RunCancelled,
    RunDeleted,
    RunNotFound,
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
    QueueMetrics,
    RetentionPolicy,
    RetentionReport,
    RunStatus,
    StepStatus,
    WorkerInfo,
    WorkerStatus,
)

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AlreadyCompleted",
    "Clock",
    "Config",
    "ConfigError",
    "ConnectionFailed",
    "Consumer",
    "DatabaseClock",
    "DeadLetter",
    "ExecutionFailed",
    "IdempotencyConflict",
    "InvalidTransition",
    "LeaseLost",
    "ManualClock",
    "Message",
    "NoActiveWorker",
    "NonDeterminism",
    "NotFound",
    "PauseError",
    "PayloadTooLarge",
    "PermanentError",
    "PgqrsError",
    "Producer",
    "PyWorkflow",
    "QueueMetrics",
    "QueueNotFound",
    "Retention",
    "RetentionPolicy",
    "RetentionReport",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunDeleted",
    "RunNotFound",
    "RunStatus",
    "SchemaMismatch",
    "SchemaNotInstalled",
    "SerializationError",
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
    "poll_all",
    "retention",
    "step",
    "using",
    "worker",
    "workflow",
    "workflow_decorator",
]
