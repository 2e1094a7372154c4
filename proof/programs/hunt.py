"""`python -m proof.programs.hunt SEED COUNT`: prints what diverges on the library that is on the path, as JSON lines.

`SEED check CASE ...` executes those cases alone, such as "17 kill@5". Ends with a line without a case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from proof.programs.bench import Bench, Divergence
from proof.programs.faults import Fault
from proof.programs.single import config_for

# Fewer than the layer takes: a breakage shows in many programs, and not in many places of one.
_FAULTS = 12
_DEADLINE_SECONDS = 40


def main(seed: int, given: list[str]) -> None:
    bench = Bench(config_for("sqlite", ""))
    executed = 0
    number = 0

    def tell(divergence: Divergence | None, said: str = "") -> None:
        case = "" if divergence is None else f"{divergence.number} {divergence.fault}"
        said = said if divergence is None else divergence.said[0]
        print(json.dumps({"case": case, "said": said, "executed": executed}), flush=True)

    def ring(*_given: Any) -> None:
        """It does not answer any more: that is a divergence, too, and the last one here."""
        case = f"{number} {bench.fault}"
        print(json.dumps({"case": case, "said": "hangs: no answer", "executed": executed}), flush=True)
        os._exit(0)

    signal.signal(signal.SIGALRM, ring)
    bench.deadline = _DEADLINE_SECONDS
    if given[0] == "check":
        for case in given[1:]:
            text, _, fault = case.partition(" ")
            number = int(text)
            for divergence in bench.run_one(seed, number, Fault.of(fault)).diverged:
                tell(divergence)
    else:
        while executed < int(given[0]):
            report = bench.run(seed, number, _FAULTS)
            executed += report.executed
            number += 1
            for divergence in report.diverged:
                tell(divergence)
        tell(None)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
