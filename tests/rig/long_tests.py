"""Tests that take long. `make test` leaves them to `make test-all`, which CI runs.

long_tests.txt names them; `make test-times` runs all tests and writes it from the times that it saw.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

LIST = Path(__file__).with_suffix(".txt")
# Of a case, on average. An eighth of all cases, which take three quarters of the time.
LONG_SECONDS = 0.4


def listed() -> frozenset[str]:
    """Their ids, without parameters."""
    return frozenset(line for line in LIST.read_text().splitlines() if line)


def function_of(nodeid: str) -> str:
    return nodeid.partition("[")[0]


class Leaver:
    """Leaves them out, and says so."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        long = listed()
        left = [item for item in items if function_of(item.nodeid) in long]
        items[:] = [item for item in items if function_of(item.nodeid) not in long]
        config.hook.pytest_deselected(items=left)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line("tests that take long are left to `make test-all`")


class Timer:
    """Writes the list from the times of this session, in which everything must have run."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        LIST.write_text("".join(f"{each}\n" for each in long_ones(self._seconds)))


def long_ones(seconds: dict[str, float]) -> list[str]:
    """From the seconds that each case took, the functions whose cases take long on average."""
    cases: dict[str, list[float]] = defaultdict(list)
    for nodeid, taken in seconds.items():
        cases[function_of(nodeid)].append(taken)
    return sorted(function for function, taken in cases.items() if sum(taken) / len(taken) >= LONG_SECONDS)
