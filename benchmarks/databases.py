"""The databases that are measured: SQLite on disk, PostgreSQL with every safety on."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

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
