"""`pgqrs promote`: from a SQLite file to PostgreSQL, with all that is under way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgqrs.cli import output
from pgqrs.cli.commands.run_actions import confirm
from pgqrs.cli.output import column
from pgqrs.cli.state import configured, say, state
from pgqrs.text.shell import quoted

if TYPE_CHECKING:
    from pgqrs.reports import PromotionReport

TABLES = (
    column("table"),
    column("rows", right=True),
    column("bytes", right=True),
    column("checksum"),
)


def promote(
    source: Annotated[str, typer.Argument(help="The file: sqlite:///app.db or turso:///app.db.")],
    target: Annotated[
        str | None, typer.Argument(help="postgresql://...; better set PGQRS_DSN: `ps` shows arguments to all.")
    ] = None,
    target_schema: Annotated[
        str | None, typer.Option("--target-schema", help="Where on PostgreSQL; else as --schema.")
    ] = None,
) -> None:
    """Move a SQLite or Turso database, with all that is under way, to an empty schema of PostgreSQL, and verify it.

    Afterwards the file refuses everybody, and workers on PostgreSQL go on with every run. --dry-run counts.
    """
    given = configured()
    file = given.with_changes(dsn=source)
    to = given.with_changes(dsn=target or given.dsn, schema=target_schema or given.schema)
    if not state().dry_run:
        confirm(
            f"move everything from {file.safe_dsn} to {to.safe_dsn}, schema {to.schema}; nobody can use the file then"
        )
    report = asyncio.run(_promote(file, to))
    if state().output in ("json", "jsonl"):
        output.one(output.body(report))
        return
    if not report.already_done:
        output.table([each for each in output.body(report)["tables"] if each["rows"]], TABLES)
    output.told(str(report))
    if report.handed_back:
        print(f"{report.handed_back:,} message(s) were held: they are due again when the leases that they had end")
    if not report.dry_run:
        say(f"start workers with PGQRS_DSN={quoted(report.target)} (and your password)")


async def _promote(source: Any, target: Any) -> PromotionReport:
    from pgqrs.api.operations.promote import promote as carry_out

    with _shown_progress() as tell:
        return await carry_out(source, target, dry_run=state().dry_run, progress=tell)


@contextmanager
def _shown_progress() -> Iterator[Any]:
    """A bar on a terminal, else a line for each table; on standard error."""
    if state().quiet or not sys.stderr.isatty():
        yield _tell_plainly
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, no_color=not state().colour), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def tell(table: str, done: int, total: int) -> None:
            if total:
                task = tasks.setdefault(table, None) or bars.add_task(table, total=total)
                tasks[table] = task
                bars.update(task, completed=done)

        yield tell


def _tell_plainly(table: str, done: int, total: int) -> None:
    if total and done == total:
        say(f"{table}: {total:,} rows")
