"""Proof: crash it everywhere, and count. `make proof` runs every layer briefly and prints the table.

    order.py       what a layer is asked for                table.py     the rows that it answers with
    databases.py   fresh databases to break                 report.py    the table as docs/reference/proof.md
    memory.py      a place for them in memory

    crash/     every store call x every mode, pairs of faults, every statement      (L1, L2, L3)
    power/     system calls that fail, power that is cut: SQLite                     (L3)
    model/     random operations against a small model                               (L4)
    programs/  random handlers against an oracle, under faults
    chaos/     many real processes, killed, stopped, cut off; failover               (L6)
    mutants/   the library broken on purpose: does anybody notice?
    examples/  crash_everywhere on the workflows in examples/

A failure prints one line with the seed and the command that repeats it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

# The test rig starts the servers.
sys.path.insert(0, str(ROOT / "tests"))
