"""`pgqrs install`, `schema`, `config`, `stats`, `failures`, `prune`: the store as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pgqrs.cli import output, parse_values
from pgqrs.cli.commands.run_actions import confirm
from pgqrs.cli.output import Column, age, column
from pgqrs.cli.progress import progress
from pgqrs.cli.state import configured, settings, state, with_admin, with_store

if TYPE_CHECKING:
    from pgqrs.api.operations.admin import Admin
    from pgqrs.api.store import Store
    from pgqrs.reports import RetentionReport

schema: typer.Typer = typer.Typer(
    help="The tables: their version, whether they are whole, and their SQL.", no_args_is_help=True
)
config: typer.Typer = typer.Typer(help="The settings, and where they come from.", no_args_is_help=True)

FAILURES = (
    column("count", right=True),
    column("workflow"),
    column("signature", "error_signature"),
    Column("last", age("last_at"), right=True),
    column("example", "example_run_id", right=True),
    column("last error", "last_error"),
)


def install() -> None:
    """Create or upgrade the tables."""
    found = with_admin(lambda admin: admin.install(), creates=True)
    settled = configured()
    output.told(f"{settled.safe_dsn}, schema {settled.schema}: the tables are at version {found}")


@schema.command("version")
def schema_version() -> None:
    """Print the version of the tables; 0 when there are none."""
    print(with_admin(lambda admin: admin.version()))


@schema.command("verify")
def schema_verify() -> None:
    """Check that every table, column and index is there."""
    with_admin(lambda admin: admin.verify())
    output.told("the tables are whole")


@schema.command("upgrade")
def schema_upgrade() -> None:
    """As `pgqrs install`."""
    install()


@schema.command("sql")
def schema_sql() -> None:
    """Print the SQL that installs the tables, to read or to run yourself."""
    from pgqrs.db import migrations
    from pgqrs.db.dialect import Dialect

    settled = configured()
    dialect = Dialect("postgres", settled.schema) if settled.backend == "postgres" else Dialect("sqlite")
    print(migrations.script(dialect), end="")


@config.command("show")
def config_show() -> None:
    """Every setting, its value and where that comes from; secrets are masked."""
    found = [{"setting": each.name, "value": each.value, "source": each.source} for each in settings()]
    output.items(found, [column("setting"), column("value"), column("source")], key="setting")


def stats() -> None:
    """The whole store at a glance."""

    async def work(admin: Admin) -> None:
        output.one(output.body(await admin.stats()))

    with_admin(work)


def failures(
    since: Annotated[str, typer.Option("--since", help="How far back to look: 24h")] = "24h",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many groups.")] = 100,
) -> None:
    """What failed, grouped by what stays the same in the errors; the most frequent first."""

    async def work(admin: Admin) -> None:
        found = await admin.failures(since=parse_values.parse_duration(since), limit=limit)
        output.items(output.body(found), FAILURES, key="error_signature")

    with_admin(work)


def prune(
    recommended: Annotated[bool, typer.Option("--recommended", help="Set the policies that we recommend.")] = False,
) -> None:
    """Delete what the retention policies let go; --dry-run counts it."""

    async def work(store: Store) -> None:
        from pgqrs.api.retention import retention

        policies = retention(store)
        if recommended and not state().dry_run:
            await policies.keep_recommended()
        planned = await policies.apply(dry_run=True)
        if state().dry_run or not planned.total:
            _print_report(planned)
            return
        confirm(f"delete {planned.total} row(s) for good")
        with progress("prune", planned.total) as advanced:
            done = await policies.apply(gently=False, on_progress=advanced)
        _print_report(done)

    with_store(work)


def _print_report(report: RetentionReport) -> None:
    if state().output == "table":
        output.told(str(report))
    else:
        output.one(output.body(report))
