"""The command line: its tree, and with which code it ends. What a command needs is imported when it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pgqrs import errors
from pgqrs.cli import tables
from pgqrs.cli.metrics import metrics
from pgqrs.cli.queues import queues
from pgqrs.cli.runs import runs
from pgqrs.cli.schedules import outbox, schedules
from pgqrs.cli.state import share
from pgqrs.cli.workflows import workers, workflows

app = typer.Typer(
    name="pgqrs",
    help="Durable workflows and queues on the database you already have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(tables.install)
for name, group in (
    ("run", runs),
    ("workflow", workflows),
    ("worker", workers),
    ("queue", queues),
    ("schedule", schedules),
    ("outbox", outbox),
    ("schema", tables.schema),
    ("config", tables.config),
):
    app.add_typer(group, name=name)
app.command()(tables.failures)
app.command()(tables.stats)
app.command()(metrics)
app.command()(tables.prune)

# The first that fits.
_CODES: tuple[tuple[type[errors.PgqrsError], int], ...] = (
    (errors.ConfigError, 2),
    (errors.NotFound, 4),
    (errors.InvalidTransition, 5),
    (errors.IdempotencyConflict, 5),
    (errors.WaitTimeout, 6),
    (errors.ExecutionFailed, 7),
    (errors.RunCancelled, 7),
    (errors.SerializationError, 2),
    (errors.SchemaNotInstalled, 9),
    (errors.SchemaMismatch, 9),
    (errors.ConnectionFailed, 9),
)
_UNEXPECTED, _DENIED, _CHECK_FAILED, _INTERRUPTED = 1, 3, 8, 130


@app.command()
def version() -> None:
    """Print the version of pgqrs."""
    from pgqrs import __version__

    print(__version__)


@app.command()
def demo(
    messages: Annotated[int, typer.Option(min=10, max=10_000, help="How many messages to work through.")] = 200,
) -> None:
    """Work through a queue on a temporary SQLite file, kill a consumer on the way, and lose nothing."""
    from pgqrs.cli.demo import run

    sys.exit(run(messages))


@app.command()
def lint(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders to search for *.py.", exists=True)],
    how: Annotated[str, typer.Option("--format", "-f", help="text, json or github.")] = "text",
) -> None:
    """Find what breaks replay in workflow bodies, without importing anything; exit code 8 when something is found."""
    from pgqrs.lint import lint_files, python_files
    from pgqrs.lint.output import FORMATS, shown

    chosen = next((each for each in FORMATS if each == how), None)
    if chosen is None:
        raise typer.BadParameter(f"{how!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    files = list(python_files(paths))
    findings = lint_files(files)
    if findings or chosen == "json":
        print(shown(findings, chosen))
    counted = f"{len(findings)} found in {len(files)} files"
    print(counted if findings else f"nothing found in {len(files)} files", file=sys.stderr)
    if findings:
        sys.exit(_CHECK_FAILED)


def main() -> NoReturn:
    """Errors of ours become one line and an exit code that scripts can tell apart."""
    share(app)
    try:
        app()
    except BrokenPipeError:
        # Whoever read us has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except errors.PgqrsError as error:
        print(f"pgqrs: {error}", file=sys.stderr)
        sys.exit(_code_of(error))
    sys.exit(0)


def _code_of(error: errors.PgqrsError) -> int:
    if "verify" in sys.argv and isinstance(error, errors.SchemaNotInstalled | errors.SchemaMismatch):
        return _CHECK_FAILED
    if type(error.__cause__).__name__ == "InsufficientPrivilegeError":
        return _DENIED
    return next((code for kind, code in _CODES if isinstance(error, kind)), _UNEXPECTED)
