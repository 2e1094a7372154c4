"""`pgqrs demo`, `dev`, `lint`, `completion`, `version`: commands that begin without a database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from pgqrs.errors import ConfigError

Port = Annotated[int, Option("--port", min=1, max=65_535, help="The dashboard's; the next free one if it is taken.")]


def demo(
    keep: Annotated[bool, Option("--keep", help="Keep the database, and say where it is.")] = False,
    play: Annotated[bool, Option("--play", help="Play by itself on a terminal, too.")] = False,
    dashboard: Annotated[bool, Option("--dashboard/--no-dashboard", help="With the dashboard beside it.")] = True,
    port: Port = 7890,
) -> None:
    """See it survive: real workflows on a temporary SQLite file, a worker that is killed, a run that goes on.

    On a terminal you hold the keys: c kills the worker, r starts a run, a approves, o opens the dashboard, q quits.
    Without one it plays by itself, and exits with 0 only if every run ended as it should.
    """
    from pgqrs.cli.demo import run

    sys.exit(run(keep=keep, play=play, port=port if dashboard else None))


def dev(
    app: Annotated[str | None, typer.Argument(help="file.py, module or module:attribute; else --app.")] = None,
    dashboard: Annotated[bool, Option("--dashboard/--no-dashboard", help="With the dashboard beside it.")] = True,
    port: Port = 7890,
    install: Annotated[bool, Option("--install", help="Create or upgrade PostgreSQL's tables.")] = False,
    concurrency: Annotated[int, Option("--concurrency", "-c", min=1, max=10_000, help="Runs at once.")] = 10,
) -> None:
    """Run an application while you write it: worker, scheduler and dashboard, started anew when you save.

    A run in progress continues from its last completed step. A file that cannot be loaded is shown, and the worker
    that was there goes on until you have mended it.
    """
    from pgqrs.cli.commands.dev import run

    sys.exit(run(app, port=port if dashboard else None, install=install, concurrency=concurrency))


def lint(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders to search for *.py.", exists=True)],
    how: Annotated[str, Option("--format", "-f", help="text, json or github.")] = "text",
) -> None:
    """Find what breaks replay in workflow bodies, without importing anything; exit code 8 when something is found."""
    from pgqrs.cli.exit_codes import CHECK_FAILED
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
        sys.exit(CHECK_FAILED)


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a completion script for your shell: names of commands and options, fixed when it is printed.

    Pressing TAB then runs nothing of ours, asks no database and evaluates no data. Print it anew after an upgrade.
    """
    from pgqrs.cli.completion import SHELLS, script

    if shell not in SHELLS:
        raise ConfigError(f"there is no completion for {shell!r}", hint=f"there is for {', '.join(SHELLS)}")
    print(script(shell), end="")


def version() -> None:
    """Print the version of pgqrs; on standard error, another project's package that overwrites it."""
    from pgqrs import distribution
    from pgqrs.cli import exit_codes

    print(distribution.version())
    for line in exit_codes.conflict_words(former=True):
        print(line, file=sys.stderr)
