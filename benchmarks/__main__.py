"""`python -m benchmarks [ours|peers|report]`: what `make bench`, `make bench-peers` and `make bench-report` run.

WHAT (scenarios, `limits`, questions), ON, ROUNDS, PEERS and RESULTS come from the environment, lists with commas.
Results go to .bench/results; .bench/benchmarks.md is a page of them and of the published ones. `report` publishes
them: it moves them to benchmarks/results and writes docs/reference/benchmarks.md.
"""

import argparse
import asyncio
import importlib
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks import questions, report
from benchmarks.plan import ALL, LIMITS
from benchmarks.runner import Order, Run

DATABASES = ("postgres", "sqlite")
ROUNDS = {"ours": 1, "peers": 3}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("mode", nargs="?", default="ours", choices=("ours", "peers", "report"))
    mode = parser.parse_args().mode
    # An end like any other, so that what was started ends too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if mode == "report":
        report.publish()
        return
    results = Path(os.environ.get("RESULTS") or report.MEASURED)
    what = chosen("WHAT", (*ALL, LIMITS, *questions.NAMES))
    asked = [name for name in what if name in questions.NAMES]
    for name in asked:
        print(f"\n== {name}", flush=True)
        asyncio.run(importlib.import_module(f"benchmarks.questions.{name}").main())
    measured = [name for name in what if name not in questions.NAMES]
    if not what:
        measured = [name for name in ALL if mode == "ours" or ALL[name].peers] + [LIMITS]
    if measured:
        order = Order(
            what=measured,
            databases=chosen("ON", DATABASES) or DATABASES,
            rounds=int(os.environ.get("ROUNDS") or ROUNDS[mode]),
            peers=peers() if mode == "peers" else {},
            results=results,
        )
        sys.exit(carry_out(order))


def carry_out(order: Order) -> str | None:
    """Measures and reports; what failed, if anything did."""
    began = time.monotonic()
    run = Run(order)
    run.measure()
    report.write([report.PUBLISHED, order.results], report.PREVIEW)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    if run.failures:
        return "failed:\n  " + "\n  ".join(run.failures)
    return None


def peers() -> dict[str, tuple[Path, Path, tuple[str, ...]]]:
    """Those that are asked for, each with its environment made; why one is missing is said."""
    from benchmarks.peers import environments  # noqa: PLC0415 - only needed with peers

    pythons, missing = environments.make_all(names=chosen("PEERS", tuple(environments.PEERS)))
    for name, reason in missing.items():
        print(f"{name} is left out: {reason}", flush=True)
    found = {name: environments.PEERS[name] for name in pythons}
    return {name: (pythons[name], peer.script, peer.databases) for name, peer in found.items()}


def chosen(variable: str, there: tuple[str, ...]) -> list[str]:
    names = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    for name in names:
        if name not in there:
            sys.exit(f"{variable}: no {name!r}; there are: {', '.join(there)}")
    return names


main()
