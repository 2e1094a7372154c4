"""A copy of a test's database, and the way back to it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg

import pgqrs
from rig.postgres import find_binaries

BESIDE = ("", "-wal", "-shm")


def take(config: pgqrs.Config, folder: Path) -> Callable[[], None]:
    """As people take one: pg_dump, SQLite's backup, a copy of a file that nobody uses. Gives what restores it."""
    kept = folder / "backup"
    if config.backend == "postgres":
        _run("pg_dump", config.dsn, f"--schema={config.schema}", f"--file={kept}")
        return lambda: _restore(config, kept)
    path = Path(config.path)
    if config.backend == "sqlite":
        with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(kept)) as copy:
            live.backup(copy)
    else:
        for end in BESIDE:
            if path.with_name(path.name + end).exists():
                shutil.copy(path.with_name(path.name + end), kept.with_name(kept.name + end))

    def put_back() -> None:
        for end in BESIDE:
            path.with_name(path.name + end).unlink(missing_ok=True)
            if kept.with_name(kept.name + end).exists():
                shutil.copy(kept.with_name(kept.name + end), path.with_name(path.name + end))

    return put_back


def _restore(config: pgqrs.Config, kept: Path) -> None:
    with psycopg.connect(config.dsn, autocommit=True) as connection:
        connection.execute(f'drop schema "{config.schema}" cascade')
    _run("psql", config.dsn, "--quiet", "--set=ON_ERROR_STOP=1", f"--file={kept}")


def _run(program: str, dsn: str, *arguments: str) -> None:
    binaries = find_binaries()
    command = [str(binaries / program) if binaries else program, f"--dbname={dsn}", *arguments]
    subprocess.run(command, check=True, capture_output=True)
