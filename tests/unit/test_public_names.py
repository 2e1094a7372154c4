"""The public API is what this list says; a change of it is a decision, not an accident."""

import ast
import subprocess
import sys
from pathlib import Path

import pgqrs

NAMES = """
__version__ errors reports types
connect connect_with using admin retention schedules dispatcher promote verify_signature
workflow workflow_decorator step discover_workflows consumer worker poll_all workflow_metrics
Config Store Workflow Run RunStatus RunFilter Context SyncContext RetryPolicy Answer Worker Producer Consumer Message ManualClock
HttpPublisher NotifyPublisher CallablePublisher
PgqrsError PermanentError TransientError PauseError ConfigError ConnectionFailed ExecutionFailed IdempotencyConflict InvalidArguments
LeaseLost RunCancelled WaitTimeout
"""
# Names that were here once, each now in a module of its own kind.
FORMER = """
Admin AlreadyCompleted BulkReason BulkResult CappedCount Clock DatabaseClock DeadLetter Dispatcher DoctorFinding DoctorReport Event
FailureGroup InvalidTransition InvariantReport Level LiveRuns MessagePage MessageState NoActiveWorker NonDeterminism NotAllowedInStep
NotFound NotRecorded OutboxCounts OutboxEvent OutboxStats OutcomeUnknown PayloadTooLarge PromotionReport PublishFailed Publisher
QueueDepth QueueMetrics QueueNotFound QueuedMessage Retention RetentionPolicy RetentionReport RunDeleted RunNotFound RunSummary
Schedule ScheduleNotFound ScheduleSlot ScheduleStats Schedules SchemaMismatch SchemaNotInstalled SerializationError SlotState Step
StepFailed StepStatus StorePromoted StoreStats TableCopy Unjudged Violation Why WorkerHealth WorkerInfo WorkerStatus WorkflowMetrics
WorkflowNotFound
"""


def test_the_public_names_are_these_and_no_others():
    assert sorted(pgqrs.__all__) == sorted(NAMES.split())


def test_every_public_name_is_there():
    assert all(hasattr(pgqrs, name) for name in pgqrs.__all__)


def test_former_names_are_the_same_things_in_their_new_places():
    homes = [pgqrs.errors, pgqrs.reports, pgqrs.types]

    assert all(any(getattr(pgqrs, name) is getattr(home, name, None) for home in homes) for name in FORMER.split())
    assert pgqrs.PyWorkflow is pgqrs.Context
    assert {*FORMER.split(), "PyWorkflow"} == set(pgqrs._FORMER_NAMES)
    assert not set(dir(pgqrs)) & set(pgqrs._FORMER_NAMES)


def test_type_checkers_see_the_same_names_in_the_same_places():
    imported = _imported_for_type_checkers(pgqrs)
    # Code that has these must still be checked.
    old = {"PyWorkflow": imported["Context"]}

    assert imported == pgqrs._NAMES | {name: ("pgqrs", name) for name in pgqrs._MODULES} | old


def test_type_checkers_see_what_calls_give_in_the_same_places():
    homes = {name: (f"pgqrs.{home}", name) for name, home in pgqrs.types._GIVEN.items()}

    assert _imported_for_type_checkers(pgqrs.types) == homes
    assert all(getattr(pgqrs.types, name).__module__ == home for name, (home, _) in homes.items())


def _imported_for_type_checkers(module):
    """The names of its `if TYPE_CHECKING:` that others may import."""
    code = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in code.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    found = {
        alias.asname: (node.module, alias.name)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    others = [node for block in blocks for node in block.body if isinstance(node, ast.Assign)]
    return found | {
        ast.unparse(node.targets[0]): found[ast.unparse(node.value)]
        for node in others
        if ast.unparse(node.value) in found
    }


def test_importing_it_imports_no_engine():
    asked = "import sys, pgqrs; print(sorted(name for name in sys.modules if name.startswith('pgqrs.')))"

    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_dispatcher_without_a_webhook_imports_no_http_client():
    asked = (
        "import asyncio, sys, pgqrs\n"
        "async def main():\n"
        "    async with pgqrs.connect('sqlite://:memory:') as store:\n"
        "        await pgqrs.dispatcher(store).to(print).run_until_idle()\n"
        "asyncio.run(main())\n"
        "pgqrs.HttpPublisher, pgqrs.NotifyPublisher\n"
        "clients = {'httpx2', 'httpcore2', 'anyio'}\n"
        "print(clients & set(sys.modules))\n"
        "pgqrs.HttpPublisher('https://hooks.example.org/')\n"
        "print(clients <= set(sys.modules))\n"
    )

    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["set()", "True"]


def test_every_error_is_a_pgqrs_error():
    errors = [
        value
        for value in (*vars(pgqrs.errors).values(), *(getattr(pgqrs, name) for name in pgqrs.__all__))
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ != "builtins"
    ]

    assert len(errors) > 20
    assert all(issubclass(error, pgqrs.PgqrsError) for error in errors)
