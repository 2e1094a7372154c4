"""A pytest plugin: sees to it that the copy of the library is what is tested, and writes down what failed."""

import json
import os
import re
from pathlib import Path

import pytest

# Set by the runner for the process that tests one copy.
COPY, ON, SEEN, FIRST = "PGQRS_MUTANT_COPY", "PGQRS_MUTANT_ON", "PGQRS_MUTANT_SEEN", "PGQRS_MUTANT_FIRST"

# A program that does not run breaks no promise: whoever fails with one of these has noticed nothing.
_DOES_NOT_RUN = re.compile(
    r"\b(SyntaxError|ImportError|ModuleNotFoundError|NameError|UnboundLocalError|AttributeError|IndentationError"
    r"|unexpected keyword argument|positional argument|unknown token|no query named"
    r"|no such column|no such table|syntax error|PostgresSyntaxError|Undefined\w+Error|AmbiguousColumnError)\b"
)
_seen: dict[str, object] = {"tests": 0, "failures": []}


def pytest_configure() -> None:
    import pgqrs

    imported = Path(pgqrs.__file__)
    if not imported.is_relative_to(os.environ[COPY]):
        raise pytest.UsageError(f"the library under test is {imported}, not the copy in {os.environ[COPY]}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests that run on every database, those on the one that is asked for."""
    kept, others = [], []
    for item in items:
        backend = getattr(item, "callspec", None) and item.callspec.params.get("backend")
        (kept if backend in (None, os.environ[ON]) else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _seen["tests"] += 1
    if report.failed:
        said = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
        broken = _DOES_NOT_RUN.search("\n".join([*said, report.caplog]))
        _seen["failures"].append(
            {
                "test": report.nodeid,
                "when": report.when,
                "said": _crash(report),
                "broken": broken.group() if broken else "",
            }
        )
        if os.environ[FIRST]:
            # At once: what a broken library has left behind, such as locks, may never be cleared away.
            _write(1)
            os._exit(1)


def _crash(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message.partition("\n")[0] if crash is not None else "it raised"


def pytest_sessionfinish(exitstatus: int) -> None:
    _write(int(exitstatus))


def _write(status: int) -> None:
    Path(os.environ[SEEN]).write_text(json.dumps({**_seen, "exit": status}), encoding="utf-8")
