"""The command line: its tree, and how it ends. A command's module is imported when its name is among the words."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import typer

from pgqrs.cli import exit_codes
from pgqrs.cli.examples import epilog
from pgqrs.cli.logs import show_warnings_safely
from pgqrs.cli.near_misses import SuggestingGroup
from pgqrs.cli.state import ReaderGoneError, share


class Entry(NamedTuple):
    """Where a command or a group is, and what the list of commands says of it."""

    home: str
    attribute: str
    says: str


# In the order of --help. Importing all of them takes longer than anybody waits for help.
COMMANDS = {
    "demo": Entry("local", "demo", "See it survive: a worker is killed, its run goes on."),
    "dev": Entry("local", "dev", "Run an application while you write it, reload on save."),
    "serve": Entry("serve", "serve", "Serve the HTTP API and the dashboard."),
    "install": Entry("store", "install", "Create or upgrade the tables."),
    "failures": Entry("store", "failures", "What failed, grouped by what stays the same."),
    "stats": Entry("store", "stats", "The whole store at a glance."),
    "metrics": Entry("metrics", "metrics", "What Prometheus reads of the store."),
    "prune": Entry("store", "prune", "Delete what the retention policies let go."),
    "doctor": Entry("doctor", "doctor", "Is all well, and if not, what mends it?"),
    "explain": Entry("explain", "explain", "What a code means, why it happens, what to do."),
    "promote": Entry("promote", "promote", "Move a SQLite database to PostgreSQL."),
    "lint": Entry("local", "lint", "Find what breaks replay in workflow bodies."),
    "completion": Entry("local", "completion", "Print a completion script for your shell."),
    "version": Entry("local", "version", "Print the version of pgqrs."),
}
GROUPS = {
    "run": Entry("runs", "runs", "Runs: trigger, find, look, act."),
    "workflow": Entry("workflows", "workflows", "Workflows: how they fare, pause and resume."),
    "worker": Entry("workflows", "workers", "Workers: who is there, and starting one."),
    "queue": Entry("queues", "queues", "Queues: what waits, what is dead, pause and resume."),
    "schedule": Entry("schedules", "schedules", "Schedules: what is triggered when."),
    "outbox": Entry("schedules", "outbox", "The outbox: what waits to be published, what is dead."),
    "token": Entry("tokens", "tokens", "Tokens: who may ask over HTTP, and for what."),
    "schema": Entry("store", "schema", "The tables: their version, their SQL, are they whole?"),
    "config": Entry("store", "config", "The settings, and where they come from."),
}


def tree(words: Collection[str] | None = None) -> typer.Typer:
    """All commands; of those that are not among the words, the name and the line that says what they are for."""
    app = typer.Typer(
        name="pgqrs",
        cls=SuggestingGroup,
        help="Durable workflows and queues on the database you already have.",
        no_args_is_help=True,
        # Typer's script for zsh evaluates what the program prints. Ours (`pgqrs completion`) never calls it.
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name, entry in COMMANDS.items():
        app.command(name, short_help=entry.says)(_found(name, entry, words))
    for name, entry in GROUPS.items():
        app.add_typer(
            _found(name, entry, words, or_else=typer.Typer()), cls=SuggestingGroup, name=name, help=entry.says
        )
    share(app)
    _show_examples(app)
    return app


def _show_examples(app: typer.Typer, path: str = "") -> None:
    for command in app.registered_commands:
        command.epilog = epilog(f"{path}{command.name}")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _show_examples(group.typer_instance, f"{path}{group.name} ")


def _found(name: str, entry: Entry, words: Collection[str] | None, *, or_else: Any = None) -> Any:
    if words is not None and name not in words:
        return or_else or _nothing
    return getattr(import_module(f"pgqrs.cli.commands.{entry.home}"), entry.attribute)


def _nothing() -> None:
    """Stands for a command that was not called."""


def main() -> NoReturn:
    """Errors become a few lines and an exit code that scripts can tell apart."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a letter is no reason to end half way.
        sys.stdout.reconfigure(errors="backslashreplace")
    show_warnings_safely()
    try:
        tree(sys.argv[1:])(prog_name="pgqrs")
        sys.stdout.flush()
    except (ReaderGoneError, BrokenPipeError):
        _leave_quietly()
    except SystemExit as ended:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _leave_quietly()
        sys.exit(ended.code)
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the last one who can say it in words
        if not isinstance(error, KeyboardInterrupt):
            exit_codes.tell(error)
        sys.exit(exit_codes.code_of(error))
    sys.exit(exit_codes.OK)


def _leave_quietly() -> NoReturn:
    """Whoever read us has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_codes.OK)
