"""Durable workflows and queues on the database you already have."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# A name's module is imported when the name is first asked for: a command that prints its help, or a test run that
# never uses us, does not pay for the whole engine. Type checkers read __init__.pyi; a test compares the two.
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
    "engine.context": "Context=PyWorkflow",
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

__all__ = ["__version__", *sorted(_NAMES)]  # noqa: PLE0604 - they are strings


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, attribute = _NAMES[name]
    value = globals()[name] = getattr(import_module(home), attribute)
    return value


def __dir__() -> list[str]:
    return __all__
