"""The public API is what this list says; a change of it is a decision, not an accident."""

import ast
import subprocess
import sys
from pathlib import Path

import pgqrs

NAMES = """
Admin AlreadyCompleted Answer Clock Config ConfigError ConnectionFailed Consumer DatabaseClock DeadLetter ExecutionFailed
IdempotencyConflict InvalidArguments InvalidTransition LeaseLost ManualClock Message NoActiveWorker NonDeterminism NotAllowedInStep NotFound NotRecorded OutcomeUnknown PauseError
PayloadTooLarge PermanentError PgqrsError Producer QueueMetrics QueueNotFound RunCancelled RunDeleted RunNotFound RunStatus
Context PyWorkflow SyncContext RetryPolicy Run StepFailed Worker Workflow consumer discover_workflows poll_all step worker workflow workflow_decorator
SchemaMismatch SchemaNotInstalled SerializationError StepStatus Store TransientError WaitTimeout WorkerInfo
LiveRuns OutboxStats QueueDepth ScheduleStats StoreStats Why WorkerHealth WorkflowMetrics workflow_metrics
BulkReason BulkResult Event FailureGroup CappedCount RunFilter RunSummary Step
Schedule ScheduleNotFound ScheduleSlot Schedules SlotState schedules
WorkerStatus WorkflowNotFound __version__ admin connect connect_with using
CallablePublisher Dispatcher HttpPublisher NotifyPublisher OutboxCounts OutboxEvent PublishFailed Publisher dispatcher verify_signature
Retention RetentionPolicy RetentionReport retention
InvariantReport Unjudged Violation StorePromoted
DoctorFinding DoctorReport Level MessagePage MessageState PromotionReport QueuedMessage TableCopy promote
"""


def test_the_public_names_are_these_and_no_others():
    assert sorted(pgqrs.__all__) == sorted(NAMES.split())


def test_every_public_name_is_there():
    assert all(hasattr(pgqrs, name) for name in pgqrs.__all__)


def test_type_checkers_see_the_same_names_in_the_same_places():
    code = ast.parse(Path(pgqrs.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in code.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {
        alias.asname: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    renamed = {
        ast.unparse(node.targets[0]): imported[ast.unparse(node.value)]
        for node in block.body
        if isinstance(node, ast.Assign)
    }

    assert imported | renamed == pgqrs._NAMES


def test_importing_it_imports_no_engine():
    asked = "import sys, pgqrs; print(sorted(name for name in sys.modules if name.startswith('pgqrs.')))"

    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_every_error_is_a_pgqrs_error():
    errors = [
        value
        for value in (getattr(pgqrs, name) for name in pgqrs.__all__)
        if isinstance(value, type) and issubclass(value, Exception)
    ]

    assert len(errors) > 20
    assert all(issubclass(error, pgqrs.PgqrsError) for error in errors)
