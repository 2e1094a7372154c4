"""A SQLite connection inside a transaction, and the units of work on their way to it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pgqrs import faults
from pgqrs.audit import AuditPolicy
from pgqrs.clock import Clock
from pgqrs.db.database import Database, IntegrityViolation, Kind, Row, drive
from pgqrs.db.dialect import Dialect
from pgqrs.db.drivers.sqlite.file import SQLiteFile
from pgqrs.db.queries import Query, to_sqlite
from pgqrs.db.readable import readable

T = TypeVar("T")
DIALECT = Dialect("sqlite")

Unit = Callable[[Database], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Job:
    """A unit of work on its way to a database thread, and the future that its caller waits on."""

    work: Unit
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    # By a power cut: it is as if it had not happened then.
    may_be_lost: bool = False
    result: Any = None
    error: BaseException | None = None
    # A commit that it was part of was not confirmed: whatever comes of it now, it may be in the file.
    in_doubt: bool = False
    # Its caller has been told, or is about to be.
    is_settled: bool = False

    def settle(self) -> None:
        """On the caller's loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        elif isinstance(self.error, StopIteration):
            # A future refuses it, and its caller would wait for ever.
            self.future.set_exception(RuntimeError(f"a unit of work raised {self.error!r}"))
        else:
            self.future.set_exception(self.error)


@dataclass(slots=True)
class SqliteSession:
    """A connection inside a transaction: what a unit of work sees as its database."""

    connection: Any
    clock: Clock
    audit_policy: AuditPolicy
    dialect: Dialect = DIALECT
    retried: bool = False
    # Whether an error of the library tells of the file, and not of the statement.
    is_trouble: Callable[[BaseException], bool] = SQLiteFile.is_trouble
    integrity_error: type[Exception] = SQLiteFile.integrity_error
    trouble: Exception | None = None
    # Whether statements of the user's have run in this unit.
    is_handed_over: bool = False

    def begin_unit(self) -> None:
        """Another unit of work on the same connection."""
        self.trouble, self.is_handed_over = None, False

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        try:
            cursor = self._run(query, params)
            rows = cursor.fetchall()
        except sqlite3.OperationalError as error:
            if not str(error).startswith("Could not decode to UTF-8"):
                raise
            read_any_text(self.connection)
            raise UndecodableText(str(error)) from error
        return readable([column[0] for column in cursor.description or ()], rows)

    async def execute(self, query: Query, **params: Any) -> int:
        try:
            return max(0, int(self._run(query, params).rowcount))
        except self.integrity_error as error:
            # Here, and not only around the unit of work: a store call may know what it means.
            raise IntegrityViolation(str(error)) from error

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        del kind, idempotent
        return await work(self)

    async def run_as_given(self, sql: str, arguments: Sequence[Any]) -> list[Row]:
        self.is_handed_over = True
        factory = getattr(self.connection, "text_factory", str)
        if factory is not str:
            # The rows are the user's: nothing in them is replaced.
            self.connection.text_factory = str
        try:
            rows: list[Row] = self.connection.execute(sql, tuple(arguments)).fetchall()
        except Exception as error:
            if self.trouble is None and self.is_trouble(error):
                self.trouble = error
            raise
        finally:
            if factory is not str:
                self.connection.text_factory = factory
        return rows

    def _run(self, query: Query, params: Mapping[str, Any]) -> Any:
        if faults.armed:
            faults.reach_sql(query.name, self.connection)
        statement = query.compiled(self.dialect, "named")
        # The database's clock is this machine's: asked here it is asked once, and not for every row.
        given = {**params, "now": self.clock.now() or time.time_ns() // 1000}
        # Turso refuses names that the statement does not have.
        return self.connection.execute(
            statement.sql, {p.name: to_sqlite(given[p.name]) for p in statement.parameters}
        )


class UndecodableText(Exception):
    """A row holds text that is no UTF-8. From now on the connection reads that, too: the unit is to be run again."""


def driven(session: SqliteSession, work: Unit, *, again: Callable[[], object] = lambda: None) -> Any:
    """Run a unit of work to its end; after text that could not be decoded once more, behind `again`."""
    try:
        return drive(work(session))
    except UndecodableText:
        again()
        session.begin_unit()
        return drive(work(session))


def read_any_text(connection: Any) -> None:
    """From now on, bytes that are no UTF-8 are read as replacement characters, as Turso reads them."""
    connection.text_factory = _with_replacements


def _with_replacements(raw: bytes) -> str:
    return raw.decode(errors="replace")


def settle(jobs: Sequence[Job]) -> None:
    """Tell the callers, with one hop per event loop however many they are."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        job.is_settled = True
        by_loop.setdefault(job.loop, []).append(job)
    for loop, theirs in by_loop.items():
        # A closed loop raises: its callers are gone.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle_all, theirs)


def _settle_all(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.settle()
