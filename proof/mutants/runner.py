"""Runs tests on a copy of the library, in a process of their own, and says what became of the mutant in it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proof import ROOT
from proof.mutants import witness
from proof.mutants.mutant import Mutant, copy_of
from proof.mutants.source import NoLongerApplies

# One test; most mutants fail within a second, and some by waiting in vain. Long, as machines are loaded.
_TEST_SECONDS = 60
# A whole selection, should not even pytest's own timeout be able to end it.
_RUN_SECONDS = 600
# For tests that use no PostgreSQL: then none is started for them.
_NO_SERVER = "postgresql://127.0.0.1:1/none"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`killed` only when a test failed on what it promises."""

    mutant: Mutant
    killed: bool
    # The test that failed; or why the mutant is not killed.
    by: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tests of one process did; `failures` as witness.py writes them, `trouble` when they did not run."""

    tests: int
    failures: tuple[dict[str, str], ...]
    trouble: str = ""


def try_mutant(mutant: Mutant, folder: Path, *, postgres: str, killers: Iterable[str] = ()) -> Verdict:
    """Its killers on a copy that is broken by it; others than its own, to find out who else would notice."""
    try:
        copy = copy_of(mutant, folder)
    except NoLongerApplies as error:
        return Verdict(mutant, killed=False, by=f"no longer applies: {error}")
    seen = run(copy, list(killers) or list(mutant.killers), on=mutant.on, postgres=postgres, first=True)
    if seen.trouble:
        return Verdict(mutant, killed=False, by=f"does not run: {seen.trouble}")
    if not seen.failures:
        return Verdict(mutant, killed=False, by=f"SURVIVED {seen.tests} tests")
    failure = seen.failures[0]
    if failure["broken"] or failure["when"] == "setup":
        why = failure["broken"] or f"in the setup of {failure['test']}"
        return Verdict(mutant, killed=False, by=f"does not run: {why}", said=failure["said"])
    return Verdict(mutant, killed=True, by=failure["test"], said=failure["said"])


def run(copy: Path, tests: list[str], *, on: str, postgres: str, first: bool) -> Seen:
    """The tests on the copy; with `first` no further than the first that fails."""
    report = copy / "seen.json"
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PGQRS_TEST_POSTGRES_DSN": postgres or _NO_SERVER,
        witness.COPY: str(copy),
        witness.ON: on,
        witness.SEEN: str(report),
        witness.FIRST: "yes" if first else "",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "proof.mutants.witness", "-p", "no:schemathesis"]
    command += ["-p", "no:cacheprovider"]
    command += [f"--timeout={_TEST_SECONDS}", "--tb=short", *tests]
    output = copy / "output.txt"
    with output.open("wb") as file:
        # A session of its own: the programs that its tests have started end with it.
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        process.wait(_RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return Seen(0, (), f"no end within {_RUN_SECONDS} s")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if not report.exists():
        return Seen(0, (), _last_line(output))
    seen = json.loads(report.read_text(encoding="utf-8"))
    # 0: all passed, 1: some failed. Anything else: not even found, or stopped half way.
    trouble = "" if seen["exit"] in (0, 1) and (seen["tests"] or seen["failures"]) else _last_line(output)
    return Seen(seen["tests"], tuple(seen["failures"]), trouble)


def _last_line(output: Path) -> str:
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "it said nothing")[:200]
