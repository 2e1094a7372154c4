"""How a command fails: what went wrong, the command that helps, and an exit code that scripts can tell apart."""

from __future__ import annotations

import sys
import traceback

from pgqrs import distribution, errors
from pgqrs.cli.output import lines, safe
from pgqrs.cli.state import state
from pgqrs.text.shell import command

OK, UNEXPECTED, USAGE, DENIED, NOT_FOUND, CONFLICT, TIMED_OUT, RUN_FAILED, CHECK_FAILED, DATABASE = range(10)
INTERRUPTED = 130

# For docs/reference/cli.md.
MEANINGS = {
    OK: "It worked.",
    UNEXPECTED: "Something unexpected happened, or you answered no.",
    USAGE: "It was called wrongly: an option, a name, a value or a setting that cannot be right. Nothing was done.",
    DENIED: "The database's role may not do that.",
    NOT_FOUND: "There is no such run, workflow, queue, schedule or worker.",
    CONFLICT: "The thing is not in a state that allows it, or the idempotency key belongs to another run.",
    TIMED_OUT: "What was waited for did not happen in time. It may still.",
    RUN_FAILED: "The run that was waited for failed, or was cancelled.",
    CHECK_FAILED: "A check found something: `schema verify`, `doctor`, `lint`.",
    DATABASE: "The database cannot be reached, or its tables are missing or of another version.",
    INTERRUPTED: "Ctrl-C.",
}

# The first that fits.
_CODES: tuple[tuple[type[errors.PgqrsError], int], ...] = (
    (errors.ConfigError, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.InvalidTransition, CONFLICT),
    (errors.IdempotencyConflict, CONFLICT),
    (errors.NoActiveWorker, CONFLICT),
    (errors.WaitTimeout, TIMED_OUT),
    (errors.ExecutionFailed, RUN_FAILED),
    (errors.RunCancelled, RUN_FAILED),
    (errors.SerializationError, USAGE),
    (errors.SchemaNotInstalled, DATABASE),
    (errors.SchemaMismatch, DATABASE),
    (errors.StorePromoted, DATABASE),
    (errors.ConnectionFailed, DATABASE),
)


def code_of(error: BaseException) -> int:
    """With which code the command ends."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if "verify" in sys.argv and isinstance(error, errors.SchemaNotInstalled | errors.SchemaMismatch):
        return CHECK_FAILED
    if type(error.__cause__).__name__ == "InsufficientPrivilegeError":
        return DENIED
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)


def tell(error: BaseException) -> None:
    """On standard error: what is wrong, and what to try. No trace unless asked: it helps only us."""
    # A ConfigError that has a cause tells of the user's own code.
    traced = error.__cause__ if isinstance(error, errors.ConfigError) else error
    if state().verbose and traced is not None and not isinstance(traced, errors.PgqrsError):
        print(safe("".join(traceback.format_exception(traced))), end="", file=sys.stderr)
    for line in (*words(error), *conflict_words()):
        print(line, file=sys.stderr)


def conflict_words(*, former: bool = False) -> list[str]:
    """Another distribution that overwrites ours, as lines: a name that is missing may be missing because of it.

    One of ours under its former name counts only if asked for: it breaks nothing until it is removed.
    """
    found = distribution.conflict()
    if found is None or (found.is_former and not former):
        return []
    return [lines(f"pgqrs: {found.what}; {found.why}"), f"  try: {safe(found.fix)}"]


def words(error: BaseException) -> list[str]:
    """An error as lines for a terminal."""
    if not isinstance(error, errors.PgqrsError):
        hint = "" if state().verbose else "; -v shows where"
        return [lines(f"pgqrs: unexpected {type(error).__name__}: {error}{hint}")]
    way = way_out(error)
    return [lines(f"pgqrs: {_what(error)}"), *([f"  try: {safe(way)}"] if way else [])]


def _what(error: errors.PgqrsError) -> str:
    match error:
        case errors.QueueNotFound() | errors.WorkflowNotFound() | errors.ScheduleNotFound():
            # Its own words name the call of the library that makes it.
            near = f"; did you mean {error.suggestion!r}?" if error.suggestion else ""
            return f"no {error.noun} named {error.name!r}{near}"
    return str(error)


def way_out(error: errors.PgqrsError) -> str | None:  # noqa: PLR0911 - an error, a line
    """The command that helps; None where the error's own words say what to do."""
    match error:
        case errors.QueueNotFound() | errors.WorkflowNotFound() if error.suggestion is None:
            return command(f"{error.noun} create", error.name)
        case errors.QueueNotFound() | errors.WorkflowNotFound() | errors.ScheduleNotFound():
            return command(f"{error.noun} list")
        case errors.RunDeleted():
            return command("run restore", error.run_id)
        case errors.RunNotFound():
            return "pgqrs run list"
        case errors.ExecutionFailed() | errors.RunCancelled():
            return command("run why", error.run_id)
        case errors.IdempotencyConflict() if error.run_id is not None:
            return command("run get", error.run_id)
        case errors.NoActiveWorker():
            return command("worker run YOUR_APP")
        case errors.ConnectionFailed() if "pgqrs install" not in str(error) and "createdb" not in str(error):
            return command("config show")
    return None
