"""A SQLite or Turso file that one reads while nobody else can write to it."""
# ruff: noqa: SLF001 - a part of the driver, in a file of its own

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from pgqrs.audit import AuditPolicy
from pgqrs.db.database import Database, Kind, Row, drive
from pgqrs.db.dialect import Dialect
from pgqrs.db.drivers.sqlite.driver import SQLiteDriver, _commit
from pgqrs.db.drivers.sqlite.session import SqliteSession, read_any_text
from pgqrs.db.queries import Query
from pgqrs.db.readable import readable

T = TypeVar("T")


class ExclusiveSession:
    """A transaction on a connection of its own, held for as long as it takes.

    Unlike a unit of work it may wait for something else between two statements: each of them is carried out in the
    one thread that has the connection, while the event loop goes on. Rows come a batch at a time.
    """

    def __init__(self, driver: SQLiteDriver) -> None:
        self._driver = driver
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pgqrs-frozen")
        self._connection: Any = None
        self.dialect: Dialect = driver.dialect
        self.audit_policy: AuditPolicy = driver.audit_policy
        self.retried = False

    async def begin(self, *, writes: bool) -> None:
        """From here on nobody else can write, if `writes`; else it is a consistent look, and others go on."""

        def begin() -> None:
            self._connection = self._driver.file.connect()
            # Rows come in batches, so none is read a second time.
            read_any_text(self._connection)
            if writes:
                self._driver._begin(self._connection)
            else:
                self._connection.execute("begin")

        await self._call(begin)

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        return await self._call(lambda: drive(self._session.fetch(query, **params)))

    async def execute(self, query: Query, **params: Any) -> int:
        return await self._call(lambda: drive(self._session.execute(query, **params)))

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        del kind, idempotent
        return await work(self)

    async def batches(self, query: Query, *, rows: int, size: int) -> AsyncIterator[list[Row]]:
        """What the query finds, so many rows or so much text at a time, whichever is less."""
        cursor = await self._call(lambda: self._session._run(query, {}))
        columns = [column[0] for column in cursor.description]

        def batch() -> list[Row]:
            found: list[Row] = []
            held = 0
            while len(found) < rows and held < size and (row := cursor.fetchone()) is not None:
                found.append(row)
                held += sum(len(value) for value in row if type(value) is str)
            return readable(columns, found)

        while found := await self._call(batch):
            yield found

    async def commit(self) -> None:
        await self._call(lambda: _commit(self._connection))

    async def close(self) -> None:
        """What was not committed is undone."""

        def end() -> None:
            with suppress(Exception):
                self._driver._roll_back(self._connection)
                self._connection.close()

        # Behind whatever the thread is at, also when that was given up: nothing may use a closed connection.
        self._thread.submit(end)
        await asyncio.to_thread(self._thread.shutdown)

    @property
    def _session(self) -> SqliteSession:
        return SqliteSession(self._connection, self._driver.clock, self.audit_policy, self.dialect)

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Exception as error:
            translated = self._driver.file.translated(error)
            if translated is error:
                raise
            raise translated from error


@asynccontextmanager
async def frozen(driver: SQLiteDriver, *, writes: bool = True) -> AsyncIterator[ExclusiveSession]:
    """The file of the driver, held still until the block ends; only `commit` keeps what was written."""
    held = ExclusiveSession(driver)
    try:
        await held.begin(writes=writes)
        yield held
    finally:
        await held.close()
