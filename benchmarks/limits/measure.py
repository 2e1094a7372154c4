"""Runs the scripts of this folder, with one client and with two."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from rig.postgres import Server, installations

FOLDER = Path(__file__).parent
CLIENTS = (1, 2)
SECONDS = 3
BLOCK = b"x" * 8192


@dataclass(frozen=True, slots=True)
class Script:
    """A file of this folder, and how many rows one of its transactions writes."""

    name: str
    rows: int
    what: str
    # What takes rows away does so many transactions per client, so that it never runs out of them.
    transactions: int | None = None


SCRIPTS = (
    Script("insert_1", 1, "insert one row, commit"),
    Script("insert_100", 100, "insert 100 rows in one statement"),
    Script("insert_1000", 1_000, "insert 1,000 rows in one statement"),
    Script("lease_1", 1, "lease 1 of 400,000 by UPDATE", 3_000),
    Script("lease_10", 10, "lease 10 of 400,000 by UPDATE", 3_000),
    Script("lease_100", 100, "lease 100 of 400,000 by UPDATE", 1_500),
    Script("complete_100", 100, "complete 100 by UPDATE", 1_500),
    Script("delete_100", 100, "complete 100 by DELETE", 1_500),
    Script("steps_100", 100, "durable work: 100 step rows in one statement"),
)


def measure(server: Server, dsn: str, *, seconds: int = SECONDS) -> Iterator[dict[str, Any]]:
    """Rows per second of each script, then the fsync rate of the disk that the data is on."""
    program = pgbench(server)
    for script in SCRIPTS:
        for clients in CLIENTS:
            _prepare(dsn, filled=script.transactions is not None)
            rate = _rows_per_second(program, dsn, script, clients, seconds)
            yield {"limit": script.name, "what": script.what, "clients": clients, "rows_per_second": rate}
    yield {
        "limit": "fsync",
        "what": "write 8 kB, fdatasync",
        "clients": 1,
        "rows_per_second": fsyncs(server, seconds),
    }


def pgbench(server: Server) -> str:
    """The server's own, else any that is on this machine: it only sends statements."""
    folders = [server.binaries, *installations()]
    found = next((folder / "pgbench" for folder in folders if (folder / "pgbench").exists()), shutil.which("pgbench"))
    if found is None:
        raise FileNotFoundError("there is no pgbench on this machine; it comes with PostgreSQL")
    return str(found)


def _prepare(dsn: str, *, filled: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((FOLDER / "tables.sql").read_text())
        if filled:
            connection.execute((FOLDER / "fill.sql").read_text())
            connection.execute("vacuum analyze jobs")
        connection.execute("checkpoint")


def _rows_per_second(program: str, dsn: str, script: Script, clients: int, seconds: int) -> float:
    much = ["-T", str(seconds)] if script.transactions is None else ["-t", str(script.transactions)]
    many = str(clients)
    file = str(FOLDER / f"{script.name}.sql")
    done = subprocess.run(
        [program, "-n", "-M", "prepared", "-c", many, "-j", many, "-D", "first=0", *much, "-f", file, dsn],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"pgbench {script.name}: {done.stderr.strip()[-500:]}")
    return float(found[1]) * script.rows


def fsyncs(server: Server, seconds: float) -> float:
    """Per second, one after the other, as a single writer commits."""
    with tempfile.TemporaryFile(dir=server.data.parent.parent) as file:
        os.pwrite(file.fileno(), BLOCK * 1024, 0)
        os.fsync(file.fileno())
        count, started = 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            os.pwrite(file.fileno(), BLOCK, count % 1024 * 8192)
            os.fdatasync(file.fileno())
            count += 1
    return count / passed
