"""The public API is what this list says; a change of it is a decision, not an accident."""

import pgqrs

NAMES = """
Admin AlreadyCompleted Clock Config ConfigError ConnectionFailed Consumer DatabaseClock DeadLetter ExecutionFailed
IdempotencyConflict InvalidTransition LeaseLost ManualClock Message NoActiveWorker NonDeterminism NotFound PauseError
PayloadTooLarge PermanentError PgqrsError Producer QueueMetrics QueueNotFound RunCancelled RunDeleted RunNotFound RunStatus
PyWorkflow RetryPolicy Run StepFailed Worker Workflow consumer discover_workflows poll_all step worker workflow workflow_decorator
SchemaMismatch SchemaNotInstalled SerializationError StepStatus Store TransientError WaitTimeout WorkerInfo
LiveRuns OutboxStats QueueDepth ScheduleStats StoreStats Why WorkerHealth WorkflowMetrics workflow_metrics
BulkReason BulkResult Event FailureGroup CappedCount RunFilter RunSummary Step
Schedule ScheduleNotFound ScheduleSlot Schedules SlotState schedules
WorkerStatus WorkflowNotFound __version__ admin connect connect_with using
CallablePublisher Dispatcher HttpPublisher NotifyPublisher OutboxCounts OutboxEvent PublishFailed Publisher dispatcher verify_signature
Retention RetentionPolicy RetentionReport retention
InvariantReport Unjudged Violation
"""


def test_the_public_names_are_these_and_no_others():
    assert sorted(pgqrs.__all__) == sorted(NAMES.split())


def test_every_public_name_is_there():
    assert all(hasattr(pgqrs, name) for name in pgqrs.__all__)


def test_every_error_is_a_pgqrs_error():
    errors = [value for value in vars(pgqrs).values() if isinstance(value, type) and issubclass(value, Exception)]

    assert len(errors) > 20
    assert all(issubclass(error, pgqrs.PgqrsError) for error in errors)
