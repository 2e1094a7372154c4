"""`crash_everywhere` on each workflow in examples/: every boundary, every one survived.

CASE="approval: kill after settlement.commit#2" repeats one crash of one workflow.
"""

import contextlib
import io
import multiprocessing
import os
import time
from collections.abc import Iterator

from pgqrs.testing import DoesNotSurvive, Report, crash_everywhere
from proof import ROOT
from proof.examples.programs import Program, files, programs
from proof.order import Order
from proof.table import Row

# Side by side: the smallest machine we care about has two cores, and a crash waits for its database.
PROCESSES = 3
# Each child of a fan-out has boundaries of its own: three of them show all that ten do.
_PICTURES, _PICTURES_IN_FULL = 3, 10
# A schema of its own for each crash takes time: briefly, the other databases see three workflows.
_BRIEFLY = ("hello", "approval", "order_saga, undone")


def prove(order: Order) -> Iterator[Row]:
    found = list(programs(order.folder / "files", pictures=_PICTURES_IN_FULL if order.full else _PICTURES))
    missing = {path.name for path in (ROOT / "examples").glob("*.py")} - files(found)
    for backend in order.on:
        began = time.monotonic()
        asked = [each for each in found if order.full or backend == "sqlite" or each.name in _BRIEFLY]
        reports, failures = _crashed_in_shares(order, backend, asked)
        boundaries = sum(report.boundaries for report in reports)
        survived = sum(report.survived for report in reports)
        missed = sum(report.missed for report in reports)
        seen = f"{survived}/{boundaries} in {len(reports)} workflows" + (f", {missed} missed" if missed else "")
        yield Row(
            number=8,
            what="crash_everywhere on the examples",
            on=backend,
            seen=f"{seen}, {failures} fail" if failures else seen,
            wanted=f"all, in each of {len(asked)}",
            # Those that did not come up again are not counted as survived, and few.
            good=not failures
            and not missing
            and len(reports) == len(asked)
            and survived == boundaries
            and missed * 10 <= boundaries,
            command=f"make proof LAYERS=examples ON={backend} SEED={order.seed}{' FULL=1' if order.full else ''}",
            seconds=time.monotonic() - began,
        )


def _crashed_in_shares(order: Order, backend: str, found: list[Program]) -> tuple[list[Report], int]:
    """Crash the workflows in several processes; each crash has a database of its own."""
    if os.environ.get("CASE"):
        return _crashed(order, backend, found)
    # Forked: workflows and what drives them need not be pickled.
    global _shared  # noqa: PLW0603 - inherited by the processes of the pool
    _shared = (order, backend, found)
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        shares = pool.map(_crash_one, range(len(found)), chunksize=1)
        pool.close()
        pool.join()
    return [report for reports, _ in shares for report in reports], sum(failures for _, failures in shares)


_shared: tuple[Order, str, list[Program]]


def _crash_one(number: int) -> tuple[list[Report], int]:
    order, backend, found = _shared
    return _crashed(order, backend, [found[number]])


def _crashed(order: Order, backend: str, found: list[Program]) -> tuple[list[Report], int]:
    reports, failures = [], 0
    wanted, _, only = os.environ.get("CASE", "").partition(": ")
    for program in found:
        if wanted and wanted != program.name:
            continue
        try:
            reports.append(crashed(order, backend, program, only=only or None))
        except DoesNotSurvive as error:
            failures += 1
            first = error.report.failures[0]
            case = f"{program.name}: {first.case}"
            print(f"{case} on {backend}: {first.why.splitlines()[0]}; seed {order.seed}, repeat with")
            print(f"  CASE={case!r} make proof LAYERS=examples ON={backend} SEED={order.seed}")
    return reports, failures


def crashed(order: Order, backend: str, program: Program, *, only: str | None = None) -> Report:
    """One workflow, killed everywhere; in full also stalled past its lease."""
    dsn = {"sqlite": None, "postgres": order.postgres, "turso": f"turso:///{order.folder}/any.db"}[backend]
    modes = ("kill", "stall") if order.full else ("kill",)
    # The examples print what they do, here once for each crash.
    with contextlib.redirect_stdout(io.StringIO()):
        return crash_everywhere(program.workflow, *program.given, dsn=dsn, modes=modes, only=only, **program.options)
