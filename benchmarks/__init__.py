"""Benchmarks: figures, never assertions. `make bench` runs all, `make bench WHAT=leases` one.

Machines are noisy: what is compared runs in one process, interleaved, several rounds; medians and ratios count.
"""

import sys
from pathlib import Path

# The test rig starts the PostgreSQL that is measured.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
