"""Databases to look at after a test, without the pool and the threads that a store brings: they cost more than the look.

On PostgreSQL most of the time went into the new connection, whose server process reads the catalogue and plans every
question again. One connection per process stays open instead; SQLite and Turso are asked in the caller's thread.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import functools
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar

import pgqrs
from pgqrs.clock import DatabaseClock
from pgqrs.db.database import Database, Kind
from pgqrs.db.dialect import Dialect
from pgqrs.db.drivers import open_driver
from pgqrs.db.drivers.sqlite.file import SQLiteFile
from pgqrs.db.drivers.sqlite.session import SqliteSession, driven

T = TypeVar("T")
Look = Callable[[Database], Awaitable[T]]


async def looked_at(config: pgqrs.Config, look: Look[T]) -> T:
    """The result of `look`, which reads from the database."""
    if config.backend != "postgres":
        with closing(_File(config)) as file:
            return await look(file)
    # A server that a test starts itself is gone after it.
    if config.dsn == os.environ.get("PGQRS_TEST_POSTGRES_DSN"):
        return await _asker(os.getpid()).look(config, look)
    async with _opened(config) as db:
        return await look(db)


class _File(SqliteSession):
    """A session whose calls are each a transaction of their own, as the driver's reads are."""

    def __init__(self, config: pgqrs.Config) -> None:
        self._file = _file_class(config.backend)(config.path)
        super().__init__(self._file.connect(), DatabaseClock(), config.audit_policy)

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        del kind, idempotent
        self.connection.execute("begin")
        try:
            result: T = driven(self, work)
        except BaseException as error:  # noqa: BLE001 - raised again at once
            raise self._file.translated(error)  # noqa: B904 - it carries its cause
        finally:
            self.connection.execute("rollback")
        return result

    def close(self) -> None:
        self.connection.close()


def _file_class(backend: str) -> type[SQLiteFile]:
    if backend == "sqlite":
        return SQLiteFile
    from pgqrs.db.drivers.turso import TursoFile

    return TursoFile


class _Asker:
    """A thread with a loop of its own, as each test has another, and in it one connection for each kind of Config."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._open: dict[pgqrs.Config, Any] = {}
        threading.Thread(target=self._loop.run_forever, name="rig-asker", daemon=True).start()
        atexit.register(self._close, os.getpid())

    async def look(self, config: pgqrs.Config, look: Look[T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._look(config, look), self._loop))

    async def _look(self, config: pgqrs.Config, look: Look[T]) -> T:
        alike = dataclasses.replace(config, schema="public", pool_size=1)
        if alike not in self._open:
            self._open[alike] = await open_driver(alike, DatabaseClock())
        db = self._open[alike]
        # Statements name their schema: the connection has none.
        db.dialect = Dialect("postgres", config.schema)
        return await look(db)

    def _close(self, process: int) -> None:
        if process == os.getpid():
            asyncio.run_coroutine_threadsafe(self._close_all(), self._loop).result(10)

    async def _close_all(self) -> None:
        for db in self._open.values():
            await db.close()


@functools.cache
def _asker(process: int) -> _Asker:
    # Of this process: a child that a test forked has neither the thread nor the connection.
    del process
    return _Asker()


@asynccontextmanager
async def _opened(config: pgqrs.Config) -> AsyncIterator[Database]:
    db = await open_driver(config, DatabaseClock())
    try:
        yield db
    finally:
        await db.close()
