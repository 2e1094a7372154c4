"""`python -m proof.programs.hunt SEED COUNT`: prints what diverges on the library that is on the path, as JSON lines.

`SEED COUNT racy` executes racy programs, `SEED check CASE ...` those cases alone, such as "17 kill@5" and "r17 none".
Ends with a line without a case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from proof.programs.bench import Bench, Divergence, read_case
from proof.programs.faults import Fault
from proof.programs.single import config_for

# Fewer than the layer takes: a breakage shows in many programs, and not in many places of one.
_FAULTS = 12
_DEADLINE_SECONDS = 40


def main(seed: int, given: list[str]) -> None:
    bench = Bench(config_for("sqlite", ""))
    executed = 0
    number = 0
    is_racy = False

    def tell(divergence: Divergence | None, said: str = "") -> None:
        case = "" if divergence is None else divergence.case
        said = said if divergence is None else divergence.said[0]
        print(json.dumps({"case": case, "said": said, "executed": executed}), flush=True)

    def ring(*_given: Any) -> None:
        """It does not answer any more: that is a divergence, too, and the last one here."""
        case = f"{'r' if is_racy else ''}{number} {bench.fault}"
        print(json.dumps({"case": case, "said": "hangs: no answer", "executed": executed}), flush=True)
        os._exit(0)

    signal.signal(signal.SIGALRM, ring)
    bench.deadline = _DEADLINE_SECONDS
    if given[0] == "check":
        for case in given[1:]:
            is_racy, number, fault = read_case(case)
            for divergence in bench.run_one(seed, number, Fault.of(fault), is_racy=is_racy).diverged:
                tell(divergence)
    else:
        is_racy = given[1:] == ["racy"]
        while executed < int(given[0]):
            report = bench.run(seed, number, _FAULTS, is_racy=is_racy)
            executed += report.executed
            number += 1
            for divergence in report.diverged:
                tell(divergence)
        tell(None)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
