"""`pgqrs doctor`: is all well, and if not, what mends it?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pgqrs.cli import output
from pgqrs.cli.exit_codes import CHECK_FAILED
from pgqrs.cli.state import state, with_admin
from pgqrs.errors import PgqrsError

if TYPE_CHECKING:
    from pgqrs.api.operations.admin import Admin
    from pgqrs.reports import DoctorReport

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


def doctor(
    verify: Annotated[bool, typer.Option("--verify", help="Also check what must hold of every row.")] = False,
) -> None:
    """Look at the database, the tables and what is in them; exit code 8 when something is bad."""
    report = _examined(verify=verify)
    if state().output in ("json", "jsonl"):
        output.one(output.body(report))
    elif state().output == "ids":
        for finding in report.findings:
            if finding.level != "ok":
                print(finding.code)
    else:
        _print(report)
    if report.level == "bad":
        sys.exit(CHECK_FAILED)


def _examined(*, verify: bool) -> DoctorReport:
    async def work(admin: Admin) -> DoctorReport:
        return await admin.doctor(verify=verify)

    try:
        found: DoctorReport = with_admin(work)
    except PgqrsError as error:
        # It cannot even be reached: that is what the doctor was asked for.
        from pgqrs.api.doctor import installation
        from pgqrs.reports import DoctorFinding, DoctorReport, Level

        return DoctorReport((*installation(), DoctorFinding("database", Level.BAD, error.problem, fix=error.hint)))
    return found


def _print(report: DoctorReport) -> None:
    width = max(len(each.code) for each in report.findings)
    margin = " " * (width + 8) + "| "
    for each in report.findings:
        what = output.lines(each.what, margin)
        print(f"{_coloured(each.level.ljust(4), each.level)}  {each.code.ljust(width)}  {what}")
        if each.level == "ok":
            continue
        for heading, text in (("why", each.why), ("fix", each.fix)):
            if text:
                print(f"{' ' * (width + 8)}{heading}: {output.lines(text, margin)}")


def _coloured(text: str, level: str) -> str:
    if not (sys.stdout.isatty() and state().colour):
        return text
    from rich.console import Console
    from rich.text import Text

    console = Console()
    with console.capture() as captured:
        console.print(Text(text, style=_COLOURS[level]), end="")
    return captured.get()
