"""`python -m proof [LAYER ...]`: what `make proof` runs. ON, FULL, MINUTES and SEED come from the environment.

A layer is a package here with `prove(order: Order) -> Iterator[Row]`. Rows are printed as they come, kept in
proof/results/, and put together in docs/reference/proof.md by `python -m proof report`.
"""

import argparse
import importlib
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from proof import report
from proof.memory import ON_DISK, in_memory, temporary_files
from proof.order import BACKENDS, Order
from proof.table import HEADING, Row
from rig import postgres

# Where temporary files are when we do not ask for another place.
DISK = Path(tempfile.gettempdir())
LAYERS = ("crash", "power", "model", "programs", "examples", "chaos", "mutants")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"of {', '.join(LAYERS)}; or: report")
    chosen = parser.parse_args().layers or list(LAYERS)
    if chosen == ["report"]:
        report.write()
        return 0
    if unknown := sorted(set(chosen) - set(LAYERS)):
        parser.error(f"no layer {', '.join(unknown)}; there are {', '.join(LAYERS)}")
    rows = list(proved([layer for layer in LAYERS if layer in chosen]))
    bad = [row for row in rows if not row.good]
    print(f"\n{len(rows) - len(bad)} of {len(rows)} hold")
    for row in bad:
        print(f"  repeat with: {row.command}")
    return 1 if bad else 0


def proved(layers: list[str]) -> Iterator[Row]:
    on = tuple(name for name in os.environ.get("ON", "").split(",") if name) or BACKENDS
    if unknown := set(on) - set(BACKENDS):
        sys.exit(f"ON: no {', '.join(sorted(unknown))}; there are {', '.join(BACKENDS)}")
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
    with ExitStack() as stack:
        stack.enter_context(temporary_files(in_memory()))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgqrs-proof-")))
        dsn = stack.enter_context(postgres.start()).dsn if "postgres" in on else ""
        print(f"seed {seed}\n{HEADING}", flush=True)
        for layer in layers:
            place = _place(layer, folder, stack)
            order = Order(
                on=on,
                full=bool(os.environ.get("FULL")),
                minutes=float(os.environ.get("MINUTES") or 1),
                seed=seed,
                postgres=dsn,
                folder=place,
            )
            with temporary_files(DISK if layer in ON_DISK else None):
                yield from _of(layer, order)


def _place(layer: str, folder: Path, stack: ExitStack) -> Path:
    """Return an empty folder for the layer."""
    above = DISK if layer in ON_DISK else folder
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"pgqrs-{layer}-", dir=above)))


def _of(layer: str, order: Order) -> Iterator[Row]:
    rows = []
    seconds: dict[str, float] = defaultdict(float)
    commit, before = report.commit_here(), time.monotonic()
    for row in importlib.import_module(f"proof.{layer}").prove(order):
        print(row.line(colour=sys.stdout.isatty()), flush=True)
        rows.append(row)
        now = time.monotonic()
        seconds[row.on] += now - before
        before = now
        yield row
    if (at_its_end := report.commit_here()) != commit:
        commit = f"{commit}, then {at_its_end}"
    report.keep(layer, order, rows, commit=commit, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
