"""Store calls on the caller's own connection follow the caller's transaction, whatever library it is of."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from types import SimpleNamespace
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgqrs import faults
from pgqrs.clock import DatabaseClock, ManualClock
from pgqrs.config import Config
from pgqrs.db import migrations, tables
from pgqrs.db.database import Kind, drive
from pgqrs.db.dialect import Dialect
from pgqrs.db.driver import Driver
from pgqrs.db.drivers import open_driver
from pgqrs.db.drivers.foreign import Enlisted, enlist
from pgqrs.db.queries import Query, load
from pgqrs.db.tables import messages, queues
from pgqrs.db.tables.messages import NewMessage, Source
from pgqrs.errors import ConfigError, QueueNotFound, SchemaNotInstalled

# As text they are all different from what a JSON decoder makes of them.
PAYLOADS = ['{"a": [1, "é %s \' \\\\"], "b":1.0}', '"text"', "null", "17", "[]"]
_STORED = Query("stored", "select payload from pgqrs_messages order by message_id")


@dataclass(slots=True)
class Caller:
    """Somebody with a connection and a transaction on it."""

    connection: Any
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]
    # Sets a savepoint; what it gives rolls back to it.
    savepoint: Callable[[], Awaitable[Callable[[], Awaitable[Any]]]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tables are, and a driver that sees what has been committed there."""

    dsn: str
    schema: str
    driver: Driver

    @property
    def path(self) -> str:
        return self.dsn.removeprefix("sqlite:///")

    def dsn_for(self, library: str) -> str:
        scheme, _, rest = self.dsn.partition(":")
        return f"{scheme}+{library}:{rest}"

    async def stored(self) -> list[str]:
        # A read: on SQLite the writer would wait for the caller's transaction.
        rows = await self.driver.perform(lambda unit: unit.fetch(_STORED), kind=Kind.READ, idempotent=True)
        return [row[0] for row in rows]


def later(work: Callable[..., Any], *args: Any) -> Callable[[], Awaitable[Any]]:
    async def call() -> Any:
        return work(*args)

    return call


def by_statement(run: Callable[[str], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    async def savepoint() -> Callable[[], Awaitable[Any]]:
        await run("savepoint inner_part")
        return lambda: run("rollback to savepoint inner_part")

    return savepoint


# -- callers: each opens a connection, begins as its users would, and closes without committing ------------------


@asynccontextmanager
async def asyncpg_connection(place: Place) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(place.dsn)
    try:
        yield await begun_on_asyncpg(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_with_json_codec(place: Place) -> AsyncIterator[Caller]:
    async with asyncpg_connection(place) as caller:
        await caller.connection.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        yield caller


@asynccontextmanager
async def asyncpg_pool(place: Place) -> AsyncIterator[Caller]:
    async with (
        asyncpg.create_pool(place.dsn, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
    ):
        yield await begun_on_asyncpg(connection)


async def begun_on_asyncpg(connection: Any) -> Caller:
    transaction = connection.transaction()
    await transaction.start()

    async def savepoint() -> Callable[[], Awaitable[Any]]:
        nested = connection.transaction()
        await nested.start()
        return nested.rollback

    return Caller(connection, transaction.commit, transaction.rollback, savepoint)


def psycopg_sync(**options: Any) -> Open:
    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Caller]:
        connection = psycopg.connect(place.dsn, **options)

        async def run(sql: str) -> None:
            psycopg.Cursor(connection).execute(sql)

        try:
            yield Caller(connection, later(connection.commit), later(connection.rollback), by_statement(run))
        finally:
            connection.close()

    return opened


def psycopg_async(**options: Any) -> Open:
    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Caller]:
        connection = await psycopg.AsyncConnection.connect(place.dsn, **options)
        try:
            yield Caller(connection, connection.commit, connection.rollback, by_statement(connection.execute))
        finally:
            await connection.close()

    return opened


def sqlite_sync(*, begin: bool = False, text: Any = str, row: Any = None) -> Open:
    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Caller]:
        connection = sqlite3.connect(place.path, **({"isolation_level": None} if begin else {}))
        connection.text_factory, connection.row_factory = text, row
        if begin:
            connection.execute("begin immediate")

        async def run(sql: str) -> None:
            connection.execute(sql)

        try:
            yield Caller(connection, later(connection.commit), later(connection.rollback), by_statement(run))
        finally:
            connection.close()

    return opened


def sqlite_async(*, text: Any = str, row: Any = None) -> Open:
    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Caller]:
        async with aiosqlite.connect(place.path) as connection:
            connection.text_factory, connection.row_factory = text, row
            yield Caller(connection, connection.commit, connection.rollback, by_statement(connection.execute))

    return opened


def sqlalchemy_sync(library: str, wrap: Callable[[Any], Any], *, text: Any = str) -> Open:
    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Caller]:
        engine = sqlalchemy.create_engine(place.dsn_for(library))
        if text is not str:
            sqlalchemy.event.listen(engine, "connect", lambda raw, _: setattr(raw, "text_factory", text))
        connection = wrap(engine)

        async def savepoint() -> Callable[[], Awaitable[Any]]:
            return later(connection.begin_nested().rollback)

        try:
            yield Caller(connection, later(connection.commit), later(connection.rollback), savepoint)
        finally:
            connection.close()
            engine.dispose()

    return opened


def sqlalchemy_async(library: str, wrap: Callable[[Any], Any]) -> Open:
    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Caller]:
        engine = create_async_engine(place.dsn_for(library))
        async with wrap(engine) as connection:

            async def savepoint() -> Callable[[], Awaitable[Any]]:
                return (await connection.begin_nested()).rollback

            yield Caller(connection, connection.commit, connection.rollback, savepoint)
        await engine.dispose()

    return opened


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def a_connection(engine: Any) -> Any:
    return engine.connect()


def a_scoped_session(engine: Any) -> Any:
    return scoped_session(sessionmaker(engine))


def an_async_scoped_session(engine: Any) -> Any:
    # One scope for all: pytest runs fixtures and tests in tasks of their own.
    return aclosing(async_scoped_session(async_sessionmaker(engine), lambda: "everywhere"))


Open = Callable[[Place], AbstractAsyncContextManager[Caller]]
ON_POSTGRES: dict[str, Open] = {
    "asyncpg": asyncpg_connection,
    "asyncpg with a json codec": asyncpg_with_json_codec,
    "asyncpg pool": asyncpg_pool,
    "psycopg": psycopg_sync(),
    "psycopg with dict rows": psycopg_sync(row_factory=dict_row),
    "psycopg with raw cursors": psycopg_sync(cursor_factory=psycopg.RawCursor),
    "psycopg async": psycopg_async(),
    "psycopg async with dict rows": psycopg_async(row_factory=dict_row),
    "sqlalchemy connection on psycopg": sqlalchemy_sync("psycopg", a_connection),
    "sqlalchemy session on psycopg": sqlalchemy_sync("psycopg", Session),
    "sqlalchemy async connection on psycopg": sqlalchemy_async("psycopg", a_connection),
    "sqlalchemy async connection on asyncpg": sqlalchemy_async("asyncpg", a_connection),
    "sqlalchemy async session on asyncpg": sqlalchemy_async("asyncpg", AsyncSession),
}
ON_SQLITE: dict[str, Open] = {
    "sqlite3": sqlite_sync(),
    "sqlite3 with its own begin": sqlite_sync(begin=True),
    "sqlite3 with rows and text of its own": sqlite_sync(row=as_dict, text=lambda b: b.decode("latin-1")),
    "aiosqlite": sqlite_async(),
    "aiosqlite with rows and text of its own": sqlite_async(row=as_dict, text=bytes),
    "sqlalchemy connection on sqlite": sqlalchemy_sync("pysqlite", a_connection),
    "sqlalchemy session on sqlite with text of its own": sqlalchemy_sync("pysqlite", Session, text=bytes),
    "sqlalchemy scoped session on sqlite": sqlalchemy_sync("pysqlite", a_scoped_session),
    "sqlalchemy async connection on aiosqlite": sqlalchemy_async("aiosqlite", a_connection),
    "sqlalchemy async session on aiosqlite": sqlalchemy_async("aiosqlite", AsyncSession),
    "sqlalchemy async scoped session on aiosqlite": sqlalchemy_async("aiosqlite", an_async_scoped_session),
}


# -- fixtures ------------------------------------------------------------------------------------------------


@pytest.fixture(params=[*ON_POSTGRES, *ON_SQLITE])
def kind(request) -> str:
    return request.param


@pytest.fixture
async def place(kind, tmp_path) -> AsyncIterator[Place]:
    """A database without the tables."""
    async with AsyncExitStack() as stack:
        if kind in ON_SQLITE:
            yield await stack.enter_async_context(new_file(tmp_path / "app.db"))
        else:
            yield await stack.enter_async_context(new_schema())


@asynccontextmanager
async def new_file(path: Any) -> AsyncIterator[Place]:
    dsn = f"sqlite:///{path}"
    driver = await open_driver(Config(dsn), DatabaseClock())
    try:
        yield Place(dsn, "public", driver)
    finally:
        await driver.close()


@asynccontextmanager
async def new_schema() -> AsyncIterator[Place]:
    dsn, schema = os.environ["PGQRS_TEST_POSTGRES_DSN"], f"foreign_{secrets.token_hex(4)}"
    driver = await open_driver(Config(dsn, schema=schema), DatabaseClock())
    try:
        yield Place(dsn, schema, driver)
    finally:
        await driver.execute(Query("drop", f'drop schema if exists "{schema}" cascade'))
        await driver.close()


@pytest.fixture
async def installed(place) -> Place:
    await migrations.install(place.driver)
    await queues.create(place.driver, "tasks")
    return place


@pytest.fixture
async def caller(kind, place) -> AsyncIterator[Caller]:
    async with (ON_POSTGRES | ON_SQLITE)[kind](place) as caller:
        yield caller


@pytest.fixture
def db(caller, place) -> Enlisted:
    return enlist(caller.connection, schema=place.schema)


async def call(db: Enlisted, work: Coroutine[Any, Any, Any]) -> Any:
    """As a caller with such a connection would: without an event loop where the connection is a blocking one."""
    return drive(work) if db.blocking else await work


async def enqueue(db: Enlisted, *payloads: str) -> list[int]:
    queue = await call(db, queues.get(db, "tasks"))
    new = [
        NewMessage(payload, priority=0, run_at=None, delay=0 if i % 2 else 0.0, max_attempts=3)
        for i, payload in enumerate(payloads)
    ]
    return await call(db, messages.enqueue(db, queue.queue_id, new))


# -- the transaction is the caller's -------------------------------------------------------------------------


@pytest.mark.row("B4.28")
async def test_a_message_is_there_once_the_caller_commits(installed, caller, db):
    await enqueue(db, *PAYLOADS)
    before = await installed.stored()
    await caller.commit()

    assert before == []
    assert await installed.stored() == PAYLOADS


@pytest.mark.row("B4.28")
async def test_a_message_goes_with_the_transaction_that_is_rolled_back(installed, caller, db):
    await enqueue(db, "1")
    await caller.rollback()

    assert await installed.stored() == []


@pytest.mark.row("B4.28")
async def test_a_message_goes_with_its_savepoint_alone(installed, caller, db):
    await enqueue(db, '"kept"')
    undo = await caller.savepoint()
    await enqueue(db, '"undone"')
    await undo()
    await enqueue(db, '"kept too"')
    await caller.commit()

    assert await installed.stored() == ['"kept"', '"kept too"']


async def test_the_ids_of_many_come_in_the_order_given(installed, caller, db):
    payloads = [str(n) for n in range(500)]
    ids = await enqueue(db, *payloads)
    await caller.commit()

    assert ids == sorted(set(ids))
    assert await installed.stored() == payloads


async def test_payloads_come_back_as_the_text_that_went_in(installed, caller, db):
    ids = await enqueue(db, *PAYLOADS)
    queue = await call(db, queues.get(db, "tasks"))
    leases = await call(db, messages.lease(db, [Source(queue.queue_id, 30.0)], worker_id=1, batch=9))

    assert [(lease.message_id, lease.payload) for lease in leases] == list(zip(ids, PAYLOADS, strict=True))


async def test_times_are_the_clocks(installed, caller):
    clock = ManualClock()
    db = enlist(caller.connection, schema=installed.schema, clock=clock)
    await enqueue(db, "1")
    queue = await call(db, queues.get(db, "tasks"))
    (lease,) = await call(db, messages.lease(db, [Source(queue.queue_id, 30.0)], worker_id=1, batch=9))

    assert lease.enqueued_at == clock.now()
    assert (lease.visible_after - clock.now()).total_seconds() == 30


async def test_execute_says_how_many_rows_changed(installed, caller, db):
    ids = await enqueue(db, "1", "2", "3")
    queue = await call(db, queues.get(db, "tasks"))

    assert await call(db, messages.replay(db, queue.queue_id, ids)) == 0
    assert await call(db, messages.purge(db, queue.queue_id, batch=2, archived=False)) == 2


async def test_an_error_of_ours_leaves_the_transaction_usable(installed, caller, db):
    await enqueue(db, "1")
    with pytest.raises(QueueNotFound, match="did you mean 'tasks'"):
        await call(db, queues.get(db, "task"))
    await caller.commit()

    assert await installed.stored() == ["1"]


async def test_the_callers_settings_are_as_they_were(installed, caller, db):
    settings = ("row_factory", "text_factory", "isolation_level", "autocommit", "cursor_factory")

    def look() -> list[Any]:
        return [getattr(caller.connection, name, None) for name in settings]

    before = look()
    await enqueue(db, "1")

    assert look() == before


async def test_a_percent_sign_in_a_query_is_no_placeholder(installed, caller, db):
    assert await call(db, migrations.shape(db)) == await migrations.shape(installed.driver)


async def test_each_statement_is_a_fault_point(installed, caller, db):
    with faults.recorded() as points:
        await enqueue(db, "1")

    assert [point.name for point in points if point.phase == "sql"] == ["get_queue", "enqueue_messages"]


async def test_missing_tables_are_told_with_the_way_out(kind, place, caller, db):
    with pytest.raises(SchemaNotInstalled, match="run `pgqrs install`") as raised:
        await enqueue(db, "1")

    assert raised.value.__cause__ is not None
    assert (place.schema in str(raised.value)) == (kind in ON_POSTGRES)


async def test_other_errors_of_the_library_go_up_as_they_are(installed, caller, db):
    nonsense = Query("nonsense", "select no_such_column from pgqrs_queues")
    with pytest.raises(Exception, match="no_such_column") as raised:
        await call(db, db.fetch(nonsense))

    library = type(caller.connection).__module__.partition(".")[0]
    assert type(raised.value).__module__.partition(".")[0] in (library, "sqlite3")


# -- connections that commit by themselves, and what is refused ----------------------------------------------


async def test_without_a_transaction_each_statement_is_committed_by_itself(tmp_path):
    async with new_file(tmp_path / "app.db") as place:
        await migrations.install(place.driver)
        await queues.create(place.driver, "tasks")
        connection = sqlite3.connect(place.path, isolation_level=None)
        await enqueue(enlist(connection), "1")
        in_transaction = connection.in_transaction
        connection.close()

        assert not in_transaction
        assert await place.stored() == ["1"]


async def test_a_session_inside_run_sync_is_a_blocking_one():
    async with new_schema() as place:
        await migrations.install(place.driver)
        await queues.create(place.driver, "tasks")
        engine = create_async_engine(place.dsn_for("asyncpg"))
        async with AsyncSession(engine) as session:
            await session.run_sync(lambda inner: drive(enqueue(enlist(inner, schema=place.schema), "1")))
            await session.commit()
        await engine.dispose()

        assert await place.stored() == ["1"]


def test_enlisting_begins_nothing():
    engine = sqlalchemy.create_engine("sqlite://")
    with Session(engine) as session:
        enlist(session)

        assert not session.in_transaction()
    engine.dispose()


def test_connections_that_block_are_told_from_those_that_suspend():
    engine = create_async_engine("sqlite+aiosqlite://")
    with Session(engine.sync_engine) as session:
        assert enlist(session).blocking
    assert not enlist(AsyncSession(engine)).blocking


@pytest.mark.parametrize("thing", [object(), None, "postgresql://localhost", sqlite3.connect])
def test_what_is_no_connection_is_refused_by_its_type(thing):
    with pytest.raises(ConfigError) as raised:
        enlist(thing)

    assert f"{type(thing).__module__}.{type(thing).__qualname__}" in str(raised.value)
    assert "psycopg.AsyncConnection" in str(raised.value)


@pytest.mark.parametrize(
    ("dialect", "told"),
    [
        (SimpleNamespace(name="mysql", paramstyle="format"), "mysql"),
        (SimpleNamespace(name="postgresql", paramstyle="numeric"), "'numeric' placeholders"),
    ],
)
def test_a_session_on_what_we_do_not_speak_is_refused(dialect, told):
    class Elsewhere(Session):
        def get_bind(self, *args: Any, **kwargs: Any) -> Any:
            return SimpleNamespace(dialect=dialect)

    with pytest.raises(ConfigError, match=told):
        enlist(Elsewhere())


def test_a_schema_on_sqlite_is_refused_with_the_way_out():
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigError, match="connect to that file"):
        enlist(connection, schema="tenant_a")
    connection.close()


def test_a_schema_name_that_could_be_sql_is_refused():
    with pytest.raises(ConfigError, match="schema name"):
        enlist(object(), schema='x"; drop table y; --')


# -- what the SQL texts must keep to, so that a caller's connection can run them ------------------------------


def every_query() -> list[Query]:
    files = [file.name for file in resources.files(tables).iterdir() if file.name.endswith(".sql")]
    names = sorted({file.partition(".")[0] for file in files})
    return [query for name in names for query in load(tables.__name__, name).values()]


def test_no_query_hides_from_sqlite3_that_it_writes():
    # sqlite3 looks at the first word to see whether it has to begin: a write behind "with" would commit at once.
    for_sqlite = [query for query in every_query() if query.text != query.postgres_text]
    texts = [query.compiled(Dialect("sqlite"), "named").sql.split() for query in for_sqlite]
    hidden = [text for text in texts if text[0] == "with" and {"insert", "update", "delete", "replace"} & set(text)]

    assert hidden == []


async def test_json_goes_in_and_comes_out_as_text():
    # Otherwise a caller's codec would encode once more what is encoded, and decode what we decode.
    async with new_schema() as place:
        await migrations.install(place.driver)
        connection = await asyncpg.connect(place.dsn)
        exposed = []
        for query in every_query():
            try:
                prepared = await connection.prepare(query.compiled(Dialect("postgres", place.schema), "numbered").sql)
            except asyncpg.FeatureNotSupportedError:
                continue  # A text that is SQLite's alone.
            types = [*prepared.get_parameters(), *(column.type for column in prepared.get_attributes())]
            if any(kind.name.strip("[]_").startswith("json") for kind in types):
                exposed.append(query.name)
        await connection.close()

        assert exposed == []
