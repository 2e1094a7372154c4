"""The databases that are measured: SQLite on disk, PostgreSQL with every safety on."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg

import pgqrs
from rig import postgres

DURABLE = {"fsync": "on", "synchronous_commit": "on", "shared_buffers": "512MB", "max_wal_size": "8GB"}


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """The DSN of a PostgreSQL of our own."""
    with postgres.start(settings=DURABLE) as started:
        print(f"PostgreSQL {started.version}, fsync and synchronous_commit on")
        yield started.dsn


@asynccontextmanager
async def both() -> AsyncIterator[dict[str, pgqrs.Store]]:
    """A fresh store on each."""
    with tempfile.TemporaryDirectory(prefix="pgqrs-bench-") as folder:
        async with (
            server() as dsn,
            pgqrs.connect(dsn, install=True) as on_postgres,
            pgqrs.connect(f"sqlite:///{Path(folder) / 'bench.db'}") as on_sqlite,
        ):
            yield {"sqlite": on_sqlite, "postgres": on_postgres}


@contextmanager
def fresh_sqlite() -> Iterator[str]:
    """The DSN of a file that is not there yet."""
    with tempfile.TemporaryDirectory(prefix="pgqrs-bench-") as folder:
        yield f"sqlite:///{Path(folder) / 'bench.db'}"


@contextmanager
def fresh_postgres(started: postgres.Server) -> Iterator[str]:
    """The DSN of an empty database of the server, dropped on the way out."""
    with psycopg.connect(started.dsn, autocommit=True) as connection:
        connection.execute("drop database if exists bench with (force)")
        connection.execute("create database bench")
        # What the last measurement has left to write is not paid for by this one.
        connection.execute("checkpoint")
    try:
        yield started.dsn.removesuffix("/postgres") + "/bench"
    finally:
        with psycopg.connect(started.dsn, autocommit=True) as connection:
            connection.execute("drop database if exists bench with (force)")
