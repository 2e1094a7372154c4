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


def take(config: pgqrs.Config, folder: Path) -> Callable[[], None]:
    """As people take one: pg_dump, SQLite's backup, a copy of a file that nobody uses. Gives what restores it."""
    kept = folder / "backup"
    if config.backend == "postgres":
        _run("pg_dump", config.dsn, f"--schema={config.schema}", f"--file={kept}")
        return lambda: _restore(config, kept)
    copy = _copy_content if config.backend == "sqlite" else _copy_files
    copy(Path(config.path), kept)
    return lambda: copy(kept, Path(config.path))


def _copy_content(source: Path, target: Path) -> None:
    """Whoever has the target open goes on with what is in it then."""
    with closing(sqlite3.connect(source)) as there, closing(sqlite3.connect(target)) as here:
        there.backup(here)


def _copy_files(source: Path, target: Path) -> None:
    """Nobody may have either of them open."""
    for end in ("", "-wal", "-shm"):
        here = target.with_name(target.name + end)
        here.unlink(missing_ok=True)
        if (there := source.with_name(source.name + end)).exists():
            shutil.copy(there, here)


def _restore(config: pgqrs.Config, kept: Path) -> None:
    with psycopg.connect(config.dsn, autocommit=True) as connection:
        connection.execute(f'drop schema "{config.schema}" cascade')
    _run("psql", config.dsn, "--quiet", "--set=ON_ERROR_STOP=1", f"--file={kept}")


def _run(program: str, dsn: str, *arguments: str) -> None:
    binaries = find_binaries()
    command = [str(binaries / program) if binaries else program, f"--dbname={dsn}", *arguments]
    subprocess.run(command, check=True, capture_output=True)
