"""Benchmarks: figures, never assertions.

    plan.py        every scenario and how much of it        targets.py   what is to be reached
    scenarios/     our side of it, a process each           peers/       the same of others
    limits/        what database and disk can do            questions/   what decided something once
    runner.py      carries it out                           results/     a line per measurement
    arithmetic.py  medians, ratios, verdicts                report.py    page.md and chart.py made into docs/

Machines are noisy: what is compared is interleaved in one run; medians and ratios count.
"""

import sys
from pathlib import Path

# The test rig starts the PostgreSQL that is measured.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
