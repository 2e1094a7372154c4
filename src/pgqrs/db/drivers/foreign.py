"""The caller's own connection as a Database: what is written there commits or rolls back with the caller's work.

The libraries are told apart by name and none is imported: whoever hands in a connection has imported its library.
JSON needs nothing here: the SQL texts send it and ask for it as text, so no codec of the caller's is in its way.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, ClassVar, NamedTuple, TypeVar

from pgqrs import faults
from pgqrs.audit import AuditPolicy
from pgqrs.clock import Clock, DatabaseClock
from pgqrs.db.database import Database, Kind, Row
from pgqrs.db.dialect import Dialect, ParamStyle
from pgqrs.db.queries import Query, changed_rows, to_sqlite
from pgqrs.db.readable import readable
from pgqrs.db.upkeep import promotion_seal
from pgqrs.errors import ConfigError, PgqrsError, SchemaNotInstalled
from pgqrs.text.names import checked_schema

T = TypeVar("T")
_USUAL_POLICY = AuditPolicy()
_DATABASE_CLOCK = DatabaseClock()
_UNDEFINED_TABLE = "42P01"


def enlist(
    connection: Any,
    *,
    schema: str = "public",
    clock: Clock = _DATABASE_CLOCK,
    audit_policy: AuditPolicy = _USUAL_POLICY,
) -> Enlisted:
    """Store calls that are given the result run on `connection`, in the transaction that is open there.

    Nothing is begun, committed or rolled back here. A library that begins by itself before a statement of the
    caller's does so before ours; in autocommit mode, with no transaction open, each statement commits by itself,
    even where one call has several.
    `schema` is where the tables are on PostgreSQL; a SQLite connection has them in its one file.
    ConfigError for what is not an open connection or session of a library that we know.
    """
    checked_schema(schema)
    for each in type(connection).__mro__:
        adapter = _ADAPTERS.get((each.__module__.partition(".")[0], each.__name__))
        if adapter is not None:
            return adapter(connection, schema, clock, audit_policy)
    kind = type(connection)
    known = ", ".join(f"{library}.{name}" for library, name in _ADAPTERS)
    raise ConfigError(
        f"cannot enlist a {kind.__module__}.{kind.__qualname__}", hint=f"pass an open connection or session: {known}"
    )


class _Reply(NamedTuple):
    """What a statement gave: rows with the names of their columns, or how many rows it changed."""

    rows: list[Row]
    columns: Sequence[str] = ()
    changed: int = 0


class Enlisted(ABC):
    """A Database on somebody else's connection; errors of its library go up as they are.

    When `blocking` is True no call ever suspends: `pgqrs.db.database.drive` runs it without an event loop.
    """

    blocking: ClassVar[bool] = False
    retried = False
    _language: tuple[str, str]  # the database and the placeholders, in SQLAlchemy's words

    def __init__(self, connection: Any, schema: str, clock: Clock, audit_policy: AuditPolicy) -> None:
        self.audit_policy = audit_policy
        self._connection = connection
        self._clock = clock
        database, placeholders = self._speaks()
        self.dialect: Dialect = _dialect(database, schema)
        self._style = _style(placeholders)

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        try:
            reply = await self._run(*self._bound(query, params))
        except Exception as error:
            if (explained := await self._explained(error)) is not None:
                raise explained from error
            raise
        return reply.rows if self.dialect.is_postgres else readable(reply.columns, reply.rows)

    async def execute(self, query: Query, **params: Any) -> int:
        try:
            return max(0, await self._count(*self._bound(query, params)))
        except Exception as error:
            if (explained := await self._explained(error)) is not None:
                raise explained from error
            raise

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        del kind, idempotent
        return await work(self)

    @abstractmethod
    async def _run(self, sql: str, arguments: Any) -> _Reply:
        """Send one statement, in the library's way."""

    async def _count(self, sql: str, arguments: Any) -> int:
        return (await self._run(sql, arguments)).changed

    def _speaks(self) -> tuple[str, str]:
        return self._language

    def _bound(self, query: Query, params: Mapping[str, Any]) -> tuple[str, Any]:
        if faults.armed:
            faults.reach_sql(query.name)
        statement = query.compiled(self.dialect, self._style)
        encode = _to_postgres if self.dialect.is_postgres else to_sqlite
        values = tuple(encode(value) for value in statement.arguments({**params, "now": self._clock.now()}))
        if self._style not in ("named", "pyformat"):
            return statement.sql, values
        return statement.sql, dict(zip((p.key for p in statement.parameters), values, strict=True))

    async def _explained(self, error: Exception) -> PgqrsError | None:
        """What it means, where we know; else it goes up as it is."""
        if not _tells_of_no_table(error):
            return None
        if not self.dialect.is_postgres:
            # On SQLite a failed statement does not end the transaction: it can be asked why.
            with suppress(Exception):
                found = (await self._run(*self._bound(promotion_seal.FIND, {}))).rows
                return promotion_seal.Seal.read(found[0][0]).error("the file of this connection")
        return _not_installed(self.dialect)


class _Asyncpg(Enlisted):
    _language = "postgresql", "numeric_dollar"

    async def _run(self, sql: str, arguments: Any) -> _Reply:
        return _Reply(await self._connection.fetch(sql, *arguments))

    async def _count(self, sql: str, arguments: Any) -> int:
        tag: str = await self._connection.execute(sql, *arguments)
        return changed_rows(tag)


class _Psycopg(Enlisted):
    # Not connection.cursor(): the caller's cursor factory may want other placeholders, its rows may be dicts.
    blocking = True
    _language = "postgresql", "pyformat"

    async def _run(self, sql: str, arguments: Any) -> _Reply:
        psycopg = sys.modules["psycopg"]
        with psycopg.Cursor(self._connection, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(sql, arguments, prepare=False)
            return _Reply(cursor.fetchall() if cursor.description else [], changed=cursor.rowcount)


class _AsyncPsycopg(Enlisted):
    _language = "postgresql", "pyformat"

    async def _run(self, sql: str, arguments: Any) -> _Reply:
        psycopg = sys.modules["psycopg"]
        async with psycopg.AsyncCursor(self._connection, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(sql, arguments, prepare=False)
            return _Reply(await cursor.fetchall() if cursor.description else [], changed=cursor.rowcount)


class _SQLite(Enlisted):
    # sqlite3 begins by itself only before a statement whose first word is insert, update, delete or replace:
    # a test sees to it that ours start so.
    blocking = True
    _language = "sqlite", "named"

    async def _run(self, sql: str, arguments: Any) -> _Reply:
        with _text_as_str(self._connection), closing(self._connection.cursor()) as cursor:
            cursor.row_factory = None
            cursor.execute(sql, arguments)
            return _Reply(cursor.fetchall(), _names(cursor), cursor.rowcount)


class _AioSQLite(Enlisted):
    _language = "sqlite", "named"

    async def _run(self, sql: str, arguments: Any) -> _Reply:
        with _text_as_str(self._connection):
            async with self._connection.cursor() as cursor:
                cursor.row_factory = None
                await cursor.execute(sql, arguments)
                return _Reply(await cursor.fetchall(), _names(cursor), cursor.rowcount)


class _SQLAlchemy(Enlisted):
    # Always through SQLAlchemy: it must know of the statement, or its commit() takes it that there is nothing to do.
    blocking = True

    def _speaks(self) -> tuple[str, str]:
        # Asked of the bind: a session's connection() would begin a transaction.
        bind = self._connection.get_bind() if self._is_session else self._connection
        return bind.dialect.name, bind.dialect.paramstyle

    @property
    def _is_session(self) -> bool:
        return hasattr(self._connection, "get_bind")

    async def _run(self, sql: str, arguments: Any) -> _Reply:
        connection = self._connection.connection() if self._is_session else self._connection
        with _text_as_str(connection.connection.driver_connection):
            return _from_result(connection.exec_driver_sql(sql, arguments))


class _AsyncSQLAlchemy(_SQLAlchemy):
    blocking = False

    async def _run(self, sql: str, arguments: Any) -> _Reply:
        connection = await self._connection.connection() if self._is_session else self._connection
        with _text_as_str(connection.sync_connection.connection.driver_connection):
            return _from_result(await connection.exec_driver_sql(sql, arguments))


_ADAPTERS: dict[tuple[str, str], type[Enlisted]] = {
    ("asyncpg", "Connection"): _Asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _Asyncpg,
    ("psycopg", "Connection"): _Psycopg,
    ("psycopg", "AsyncConnection"): _AsyncPsycopg,
    ("sqlalchemy", "Connection"): _SQLAlchemy,
    ("sqlalchemy", "Session"): _SQLAlchemy,
    ("sqlalchemy", "scoped_session"): _SQLAlchemy,
    ("sqlalchemy", "AsyncConnection"): _AsyncSQLAlchemy,
    ("sqlalchemy", "AsyncSession"): _AsyncSQLAlchemy,
    ("sqlalchemy", "async_scoped_session"): _AsyncSQLAlchemy,
    ("sqlite3", "Connection"): _SQLite,
    ("aiosqlite", "Connection"): _AioSQLite,
}
_STYLES: dict[str, ParamStyle] = {
    "numeric_dollar": "numbered",
    "pyformat": "pyformat",
    "format": "format",
    "named": "named",
    "qmark": "qmark",
}


def _dialect(database: str, schema: str) -> Dialect:
    if database == "postgresql":
        return Dialect("postgres", schema)
    if database != "sqlite":
        raise ConfigError(f"cannot enlist a connection to {database}", hint="pgqrs works on PostgreSQL and SQLite")
    if schema != "public":
        raise ConfigError(
            f"on SQLite schema {schema!r} is a file of its own", hint="connect to that file, and leave schema out"
        )
    return Dialect("sqlite")


def _style(placeholders: str) -> ParamStyle:
    style = _STYLES.get(placeholders)
    if style is None:
        raise ConfigError(f"cannot enlist a connection with {placeholders!r} placeholders", hint="use another driver")
    return style


def _to_postgres(value: Any) -> Any:
    """psycopg takes a tuple for a composite value, and refuses a list in which ints and floats are mixed."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return value
    if any(isinstance(item, float) for item in value):
        return [None if item is None else float(item) for item in value]
    return list(value)


@contextmanager
def _text_as_str(connection: Any) -> Iterator[None]:
    """While it lasts, text comes as str, whatever the caller has set; a SQLite cursor has no such setting itself."""
    factory = getattr(connection, "text_factory", str)
    if factory is str:
        yield
        return
    connection.text_factory = str
    try:
        yield
    finally:
        connection.text_factory = factory


def _from_result(result: Any) -> _Reply:
    if not result.returns_rows:
        return _Reply([], changed=result.rowcount)
    return _Reply([tuple(row) for row in result], tuple(result.keys()))


def _names(cursor: Any) -> list[str]:
    return [column[0] for column in cursor.description or ()]


def _tells_of_no_table(error: Exception) -> bool:
    # SQLAlchemy wraps the driver's error; psycopg2 has its own word for the code, and SQLite has only words.
    error = getattr(error, "orig", None) or error
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    text = str(error)
    return "pgqrs_" in text and (code == _UNDEFINED_TABLE or "no such table" in text)


def _not_installed(dialect: Dialect) -> SchemaNotInstalled:
    where = f"schema {dialect.schema!r} of" if dialect.is_postgres else "the file of"
    return SchemaNotInstalled(
        f"the pgqrs tables are not in {where} this connection",
        hint="run `pgqrs install` there, or enlist a connection to where they are",
    )
