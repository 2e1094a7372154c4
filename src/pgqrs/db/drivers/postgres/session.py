"""A PostgreSQL connection for one unit of work: our settings for our statements, the server's for the user's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from pgqrs import faults
from pgqrs.audit import AuditPolicy
from pgqrs.clock import Clock
from pgqrs.db.database import Database, IntegrityViolation, Kind, Row, WorkFailed
from pgqrs.db.dialect import Dialect
from pgqrs.db.drivers.postgres.errors import is_trouble
from pgqrs.db.queries import Query, changed_rows

T = TypeVar("T")

# What a role or a database defaults to must not change what our statements do.
PINS = {
    # On a young table the planner knows nothing and walks whole tables: the same statements at a fifth of the speed.
    # Ours are written for one plan each, so they get that plan.
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    # Closed: texts name their schema.
    "search_path": "pg_catalog",
    # A transaction waits for a row's lock, and then must see what the one before it has written: with one snapshot
    # for all of it, a wait that commits after its signal does not see it, and 25 of 600 runs waited for ever.
    "default_transaction_isolation": "read committed",
    # Arrays travel as text (db/postgres_arrays.py), in which NULL is no word.
    "array_nulls": "on",
    # A statement of ours that waits for a lock has the client's timeout (command_timeout_seconds). The server's two
    # timeouts of transactions stay: they free the locks of a process that stands still.
    "statement_timeout": "0",
    "lock_timeout": "0",
}
# How long a server may take to answer after a statement whose time was up.
_ANSWER_SECONDS = 2.0
_USUAL = "select " + ", ".join(f"current_setting('{name}')" for name in PINS)
_SET_LOCALLY = "select " + ", ".join(f"set_config('{name}', ${i}, true)" for i, name in enumerate(PINS, 1))
# Deferred constraints and triggers of the user's are due now: under the user's settings, and as the user's errors.
_DUE = "set constraints all immediate; "


class SessionSettings:
    """The settings of a driver's connections, and how they change hands inside a transaction.

    A connection of our own has the pins from its start. Behind a pooler in transaction mode nothing outlasts a
    transaction, so each begins with them.
    """

    def __init__(self, dsn: str, *, pooled: bool) -> None:
        self._dsn = dsn
        self._pooled = pooled
        self._usual: tuple[str, ...] | None = None
        self.at_start: dict[str, str] = {} if pooled else {**PINS, "application_name": "pgqrs"}
        self.begin: str = "begin isolation level read committed; " + _set("set local") if pooled else "begin"
        # For the session, too, if it is ours: a `set` of the user's would outlast the transaction otherwise.
        self.take_back: str = _DUE + _set("set local" if pooled else "set")

    async def hand_over(self, connection: Any) -> None:
        """The server's usual settings, as any other client with this DSN has them, until the transaction ends."""
        if self._pooled:
            await connection.execute(" ".join(f"set local {name} to default;" for name in PINS))
            return
        if self._usual is None:
            self._usual = await self._ask()
        await connection.fetch(_SET_LOCALLY, *self._usual)

    async def _ask(self) -> tuple[str, ...]:
        """Asked on a connection without pins: on ours the pins are the defaults."""
        connection = await asyncpg.connect(self._dsn, timeout=10, command_timeout=10, statement_cache_size=0)
        try:
            return tuple((await connection.fetch(_USUAL))[0])
        finally:
            connection.terminate()


def _set(words: str) -> str:
    return " ".join(f"{words} {name} = '{value}';" for name, value in PINS.items())


@dataclass(slots=True)
class PostgresSession:
    """A connection for the length of one unit of work."""

    connection: Any
    dialect: Dialect
    clock: Clock
    audit_policy: AuditPolicy
    settings: SessionSettings
    retried: bool = False
    # The first error of a user's statement that is the engine's: whatever the user's function made of it.
    trouble: Exception | None = None
    # The last error of a user's statement: after it the server refuses all others.
    failed: Exception | None = None
    _is_handed_over: bool = False

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        sql, arguments = self._bound(query, params)
        if self._is_handed_over:
            await self._take_back()
        rows: list[Row] = await self.connection.fetch(sql, *arguments)
        return rows

    async def execute(self, query: Query, **params: Any) -> int:
        sql, arguments = self._bound(query, params)
        if self._is_handed_over:
            await self._take_back()
        try:
            tag: str = await self.connection.execute(sql, *arguments)
        except asyncpg.IntegrityConstraintViolationError as error:
            # Here, and not only around the unit of work: a store call may know what it means.
            raise IntegrityViolation(str(error)) from error
        return changed_rows(tag)

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        del kind, idempotent
        return await work(self)

    async def run_as_given(self, sql: str, arguments: Sequence[Any]) -> list[Row]:
        if not self._is_handed_over:
            try:
                await self.settings.hand_over(self.connection)
            except Exception as error:
                self.trouble = error
                raise
            self._is_handed_over = True
        self.connection.times.is_users = True
        try:
            rows: list[Row] = await self.connection.fetch(sql, *arguments)
        except Exception as error:
            self.failed = error
            if isinstance(error, TimeoutError) and await self._answers():
                # The statement is slow, and would be again: its time is up for the user's function, not for the call.
                self.failed = TimeoutError(
                    "the statement took longer than command_timeout_seconds: raise that setting, or do less in one "
                    "statement"
                )
                raise self.failed from error
            if self.trouble is None and is_trouble(error, self.connection):
                self.trouble = error
            raise
        finally:
            self.connection.times.is_users = False
        return rows

    async def _answers(self) -> bool:
        """Whether the server is there: the client has cancelled a statement because its time was up."""
        try:
            await self.connection.execute("select 1", timeout=_ANSWER_SECONDS)
        except asyncpg.PostgresError:
            # As in every transaction with a failed statement.
            return not self.connection.is_closed()
        except Exception:  # noqa: BLE001 - whatever else it is, it is no answer
            return False
        return True

    async def _take_back(self) -> None:
        """After the user's function: what it has left behind is an error of its own."""
        self._is_handed_over = False
        try:
            await self.connection.execute(self.settings.take_back)
        except asyncpg.InFailedSQLTransactionError as error:
            if self.failed is None:
                raise
            # The function has caught it and returned; the server has undone the transaction all the same.
            raise WorkFailed(self.failed) from error
        except asyncpg.PostgresError as error:
            if is_trouble(error, self.connection):
                raise
            raise WorkFailed(error) from error

    def _bound(self, query: Query, params: dict[str, Any]) -> tuple[str, list[Any]]:
        if faults.armed:
            faults.reach_sql(query.name, self.connection)
        statement = query.compiled(self.dialect, "numbered")
        params["now"] = self.clock.now()
        return statement.sql, statement.arguments(params)
