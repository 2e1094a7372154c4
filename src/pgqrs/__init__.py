"""Durable workflows and queues on the database you already have."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# What type checkers and editors read. It is not executed: see below. A test compares the two.
if TYPE_CHECKING:
    from pgqrs import errors as errors
    from pgqrs import reports as reports
    from pgqrs import types as types
    from pgqrs.api.connect import connect as connect
    from pgqrs.api.connect import connect_with as connect_with
    from pgqrs.api.consumer import Consumer as Consumer
    from pgqrs.api.dispatcher import dispatcher as dispatcher
    from pgqrs.api.message import Message as Message
    from pgqrs.api.operations.admin import admin as admin
    from pgqrs.api.operations.metrics import workflow_metrics as workflow_metrics
    from pgqrs.api.operations.promote import promote as promote
    from pgqrs.api.producer import Producer as Producer
    from pgqrs.api.retention import retention as retention
    from pgqrs.api.run import Run as Run
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
    from pgqrs.clock import ManualClock as ManualClock
    from pgqrs.config import Config as Config
    from pgqrs.engine.ctx.context import Context as Context
    from pgqrs.engine.ctx.sync_context import SyncContext as SyncContext
    from pgqrs.engine.outbox.publishers.callable import CallablePublisher as CallablePublisher
    from pgqrs.engine.outbox.publishers.http import HttpPublisher as HttpPublisher
    from pgqrs.engine.outbox.publishers.notify import NotifyPublisher as NotifyPublisher
    from pgqrs.engine.outbox.publishers.signature import verify_signature as verify_signature
    from pgqrs.errors import ConfigError as ConfigError
    from pgqrs.errors import ConnectionFailed as ConnectionFailed
    from pgqrs.errors import ExecutionFailed as ExecutionFailed
    from pgqrs.errors import IdempotencyConflict as IdempotencyConflict
    from pgqrs.errors import InvalidArguments as InvalidArguments
    from pgqrs.errors import LeaseLost as LeaseLost
    from pgqrs.errors import PauseError as PauseError
    from pgqrs.errors import PermanentError as PermanentError
    from pgqrs.errors import PgqrsError as PgqrsError
    from pgqrs.errors import RunCancelled as RunCancelled
    from pgqrs.errors import TransientError as TransientError
    from pgqrs.errors import WaitTimeout as WaitTimeout
    from pgqrs.filters import RunFilter as RunFilter
    from pgqrs.retry import RetryPolicy as RetryPolicy
    from pgqrs.types import Answer as Answer
    from pgqrs.types import RunStatus as RunStatus

    PyWorkflow = Context
    workflow_decorator = workflow

# A name's module is imported when the name is first asked for: a command that prints its help, or a test run that
# never uses us, does not pay for the whole engine.
_HOMES = {
    "api.operations.admin": "admin",
    "api.connect": "connect connect_with",
    "api.consumer": "Consumer",
    "api.dispatcher": "dispatcher",
    "api.message": "Message",
    "api.operations.metrics": "workflow_metrics",
    "api.producer": "Producer",
    "api.operations.promote": "promote",
    "api.retention": "retention",
    "api.run": "Run",
    "api.schedules": "schedules",
    "api.steps": "step",
    "api.store": "Store",
    "api.using": "using",
    "api.worker": "Worker consumer poll_all worker",
    "api.workflow": "Workflow discover_workflows workflow workflow=workflow_decorator",
    "clock": "ManualClock",
    "config": "Config",
    "engine.ctx.context": "Context",
    "engine.ctx.sync_context": "SyncContext",
    "engine.outbox.publishers.http": "HttpPublisher",
    "engine.outbox.publishers.notify": "NotifyPublisher",
    "engine.outbox.publishers.callable": "CallablePublisher",
    "engine.outbox.publishers.signature": "verify_signature",
    "errors": """
        ConfigError ConnectionFailed ExecutionFailed IdempotencyConflict InvalidArguments LeaseLost PauseError
        PermanentError PgqrsError RunCancelled TransientError WaitTimeout
    """,
    "filters": "RunFilter",
    "retry": "RetryPolicy",
    "types": "Answer RunStatus",
}
# Names that were here before: code that has them works, and nothing offers them any more.
_FORMER = {
    "api.operations.admin": "Admin",
    "api.dispatcher": "Dispatcher",
    "api.operations.queue_peek": "MessagePage",
    "api.retention": "Retention",
    "api.schedules": "Schedules",
    "clock": "Clock DatabaseClock",
    "engine.ctx.context": "Context=PyWorkflow",
    "engine.outbox.routes": "Publisher",
    "errors": """
        AlreadyCompleted InvalidTransition NoActiveWorker NonDeterminism NotAllowedInStep NotFound NotRecorded
        OutcomeUnknown PayloadTooLarge PublishFailed QueueNotFound RunDeleted RunNotFound ScheduleNotFound
        SchemaMismatch SchemaNotInstalled SerializationError StepFailed StorePromoted WorkflowNotFound
    """,
    "reports": """
        BulkReason BulkResult CappedCount DoctorFinding DoctorReport FailureGroup InvariantReport Level LiveRuns
        OutboxCounts OutboxStats PromotionReport QueueDepth QueueMetrics RetentionPolicy RetentionReport
        ScheduleStats StoreStats TableCopy Unjudged Violation Why WorkerHealth WorkflowMetrics
    """,
    "types": """
        DeadLetter Event MessageState OutboxEvent QueuedMessage RunSummary Schedule ScheduleSlot SlotState Step
        StepStatus WorkerInfo WorkerStatus
    """,
}
# Modules with the other types: `pgqrs.errors.NotFound` needs no import of its own.
_MODULES = ("errors", "reports", "types")


def _places(homes: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Each name with its module, and its name there: `Context=PyWorkflow` is known outside by another one."""
    return {
        other or name: (f"{__name__}.{home}", name)
        for home, names in homes.items()
        for name, _, other in (each.partition("=") for each in names.split())
    }


_NAMES, _FORMER_NAMES = _places(_HOMES), _places(_FORMER)

if not TYPE_CHECKING:
    __all__ = ["__version__", *sorted([*_NAMES, *_MODULES])]  # noqa: PLE0604 - they are strings

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        place = _NAMES.get(name) or _FORMER_NAMES.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home, attribute = place
        value = globals()[name] = getattr(import_module(home), attribute)
        return value

    def __dir__() -> list[str]:
        return __all__
