"""The commands, noun then verb. What they need is imported when they run, so that --help is quick."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pgqrs.errors import ConnectionFailed, PgqrsError, SchemaMismatch, SchemaNotInstalled

if TYPE_CHECKING:
    from pgqrs.api.admin import Admin

app = typer.Typer(
    name="pgqrs",
    help="Durable workflows and queues on the database you already have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
schema = typer.Typer(help="The tables: their version, whether they are whole, and their SQL.", no_args_is_help=True)
app.add_typer(schema, name="schema")

# Read from the environment rather than given on the command line, where `ps` shows it to everybody.
Dsn = Annotated[
    str | None, typer.Option("--dsn", "-d", help="The database; better set PGQRS_DSN: `ps` shows arguments.")
]
Schema = Annotated[str | None, typer.Option("--schema", "-s", help="The schema (PGQRS_SCHEMA).")]

_CHECK_FAILED, _UNREACHABLE = 8, 9


@app.command()
def version() -> None:
    """Print the version of pgqrs."""
    from pgqrs import __version__  # noqa: PLC0415

    print(__version__)


@app.command()
def install(dsn: Dsn = None, schema: Schema = None) -> None:
    """Create or upgrade the tables."""
    found = _with_admin(dsn, schema, lambda admin: admin.install(), creates=True)
    config = _config(dsn, schema)
    print(f"{config.safe_dsn}, schema {config.schema}: the tables are at version {found}")


@schema.command("version")
def schema_version(dsn: Dsn = None, schema: Schema = None) -> None:
    """Print the version of the tables; 0 when there are none."""
    print(_with_admin(dsn, schema, lambda admin: admin.version()))


@schema.command("verify")
def schema_verify(dsn: Dsn = None, schema: Schema = None) -> None:
    """Check that every table, column and index is there."""
    _with_admin(dsn, schema, lambda admin: admin.verify())
    print("the tables are whole")


@schema.command("sql")
def schema_sql(dsn: Dsn = None, schema: Schema = None) -> None:
    """Print the SQL that installs the tables, to read or to run yourself."""
    from pgqrs.db import migrations  # noqa: PLC0415
    from pgqrs.db.dialect import Dialect  # noqa: PLC0415

    config = _config(dsn, schema)
    dialect = Dialect("postgres", config.schema) if config.backend == "postgres" else Dialect("sqlite")
    print(migrations.script(dialect), end="")


@app.command()
def demo(
    messages: Annotated[int, typer.Option(min=10, max=10_000, help="How many messages to work through.")] = 200,
) -> None:
    """Work through a queue on a temporary SQLite file, kill a consumer on the way, and lose nothing."""
    from pgqrs.cli.demo import run  # noqa: PLC0415

    sys.exit(run(messages))


@app.command()
def lint(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders to search for *.py.", exists=True)],
    how: Annotated[str, typer.Option("--format", "-f", help="text, json or github.")] = "text",
) -> None:
    """Find what breaks replay in workflow bodies, without importing anything; exit code 8 when something is found."""
    from pgqrs.lint import lint_files, python_files  # noqa: PLC0415
    from pgqrs.lint.output import FORMATS, shown  # noqa: PLC0415

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
    try:
        app()
    except PgqrsError as error:
        print(f"pgqrs: {error}", file=sys.stderr)
        match error:
            case SchemaNotInstalled() | SchemaMismatch():
                sys.exit(_CHECK_FAILED if "verify" in sys.argv else _UNREACHABLE)
            case ConnectionFailed():
                sys.exit(_UNREACHABLE)
            case _:
                sys.exit(2)
    sys.exit(0)


def _config(dsn: str | None, schema: str | None) -> Any:
    from pgqrs.config import Config  # noqa: PLC0415

    given: dict[str, Any] = {"dsn": dsn, "schema": schema}
    return Config(**{name: value for name, value in given.items() if value is not None})


def _with_admin(
    dsn: str | None, schema: str | None, verb: Callable[[Admin], Coroutine[Any, Any, Any]], *, creates: bool = False
) -> Any:
    from pgqrs.api.admin import admin  # noqa: PLC0415
    from pgqrs.api.connect import connect_with  # noqa: PLC0415

    if dsn is None and "PGQRS_DSN" not in os.environ:
        print("using sqlite:///pgqrs.db; name another database with PGQRS_DSN or --dsn", file=sys.stderr)
    config = _config(dsn, schema)
    if not creates and config.backend != "postgres" and not Path(config.path).exists():
        # Connecting would make it, and then all would be well with an empty file.
        raise ConnectionFailed(f"there is no file {config.path!r}; make it with `pgqrs install`")

    async def call() -> Any:
        async with connect_with(config) as store:
            return await verb(admin(store))

    return asyncio.run(call())
