"""One measurement: sets up, measures, prints one line of JSON."""

import argparse
import asyncio
import importlib
import json
import logging

import pgqrs
from benchmarks.scenarios import SCENARIOS
from benchmarks.scenarios.place import Place


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scenarios", description=__doc__)
    parser.add_argument("--scenario", required=True, choices=SCENARIOS)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--count", type=int, required=True, help="messages, runs, samples, or how much lies beside")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long an idle worker is watched")
    given = parser.parse_args()
    # A worker that is started after its runs were triggered is the plan here, and no warning.
    logging.getLogger("pgqrs").setLevel(logging.ERROR)
    measure = getattr(importlib.import_module(f"benchmarks.scenarios.{SCENARIOS[given.scenario]}"), given.scenario)
    figures = asyncio.run(measure(Place(given.dsn, given.count, given.seconds)))
    print(json.dumps({"peer": "ours", "version": pgqrs.__version__, "scenario": given.scenario, **figures}))


main()
