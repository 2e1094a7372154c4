"""PostgreSQL: an asyncpg pool with pinned plans, and what to do when the connection breaks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import asyncpg

from pgqrs import faults
from pgqrs.clock import Clock
from pgqrs.config import Config, masked
from pgqrs.db.database import Database, IntegrityViolation, Kind, Row
from pgqrs.db.dialect import Dialect
from pgqrs.db.driver import Owner
from pgqrs.db.drivers.postgres_hints import Listener, Notifier, arrives
from pgqrs.db.drivers.postgres_lineage import Lineage
from pgqrs.db.drivers.postgres_pool import ConnectionPool
from pgqrs.db.hints import Hints
from pgqrs.db.queries import Query, changed_rows
from pgqrs.errors import ConnectionFailed, PgqrsError, SchemaNotInstalled
from pgqrs.journal import Journal
from pgqrs.retry import Backoff

T = TypeVar("T")
log = logging.getLogger("pgqrs.db")

# On a young table the planner knows nothing and walks whole tables: the same statements at a fifth of the speed.
# Ours are written for one plan each, so they get that plan. The search path is closed: texts name their schema.
PINS = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "search_path": "pg_catalog",
}
_PIN_LOCALLY = "begin; " + " ".join(f"set local {name} = '{value}';" for name, value in PINS.items())
# For statements of the user's: the planner's usual freedom, the usual path, until the transaction ends.
_UNPIN = (
    "set local plan_cache_mode = auto; set local enable_seqscan = on; set local enable_hashjoin = on; "
    'set local enable_mergejoin = on; set local search_path = "$user", public'
)

_RETRY = Backoff(base=0.05, cap=2.0)

# The server said that the transaction is undone: running it again is always safe.
_UNDONE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
# The server went away, is coming up, has no room, or has become a standby; the statement was refused.
_REFUSED = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.ReadOnlySQLTransactionError,
    # A connection that was ended while it lay idle: asyncpg notices before it sends anything.
    asyncpg.InternalClientError,
)
# The server's answer is no, for a reason outside this program.
_ACTED_ON = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.OperatorInterventionError,  # statement_timeout, pg_cancel_backend
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)
# The connection broke: what was sent last may have been carried out.
_BROKEN = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError, TimeoutError)

# After these a connection does not go back into the pool: the next try shall reach a server that is there, and may
# write. Nor after a timeout (the server may still be at it), nor after an argument that the client refused: the
# statement is parsed then, its locks are taken, and no Sync has been sent.
_UNFIT = (*_REFUSED, *_BROKEN, asyncpg.DataError)


@dataclass(slots=True)
class Session:
    """A connection for the length of one unit of work."""

    connection: Any
    dialect: Dialect
    clock: Clock
    journal: Journal
    retried: bool = False
    _unpinned: bool = False

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        sql, arguments = self._bound(query, params)
        rows: list[Row] = await self.connection.fetch(sql, *arguments)
        return rows

    async def execute(self, query: Query, **params: Any) -> int:
        sql, arguments = self._bound(query, params)
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
        if not self._unpinned:
            self._unpinned = True
            await self.connection.execute(_UNPIN)
        rows: list[Row] = await self.connection.fetch(sql, *arguments)
        return rows

    def _bound(self, query: Query, params: dict[str, Any]) -> tuple[str, list[Any]]:
        if faults.armed:
            faults.reach_sql(query.name, self.connection)
        statement = query.compiled(self.dialect, "numbered")
        params["now"] = self.clock.now()
        return statement.sql, statement.arguments(params)


class PostgresDriver:
    """The pool."""

    retried = False
    several_processes = True

    def __init__(self, config: Config, clock: Clock) -> None:
        self.clock = clock
        self.dialect = Dialect("postgres", config.schema)
        self.journal = config.journal
        self.hints = Hints()
        self._config = config
        self._owner = Owner()
        self._lineage = Lineage()
        self._loop = asyncio.get_running_loop()
        # A pooler in transaction mode keeps no setting and no prepared statement for us.
        self.pooled = config.statement_cache_size == 0
        self._pool: ConnectionPool
        self._closed = False
        self._notifier = Notifier(self, config.schema)
        self._listener: Listener | None = None

    @classmethod
    async def open(cls, config: Config, clock: Clock) -> Self:
        driver = cls(config, clock)
        await driver._connect()
        driver.hints.tell_others = driver._notifier.tell
        if not driver.pooled or config.listen_dsn:
            driver._listener = Listener(config.listen_dsn or config.dsn, config.schema, driver.hints)
            driver.hints.listeners.append(driver._listener.start)
        else:
            log.info("behind a pooler without listen_dsn: no wake-up hints, polling alone finds new work")
        return driver

    async def _connect(self) -> None:
        try:
            self._pool = await self._make_pool()
        except asyncpg.ProtocolViolationError as error:
            if "startup parameter" not in str(error):
                raise _unreachable(self._config, error) from error
            # PgBouncer refuses settings at start-up: then every transaction brings its own.
            log.info("the server refuses start-up settings (%s): taking it for a transaction pooler", error)
            self.pooled = True
            self._pool = await self._make_pool()
        except (
            asyncpg.PostgresError,
            asyncpg.ClientConfigurationError,
            asyncpg.InternalClientError,
            ValueError,
        ) as error:
            raise _unreachable(self._config, error) from None
        except _BROKEN as error:
            raise _unreachable(self._config, error) from error

    async def _make_pool(self) -> ConnectionPool:
        pool = ConnectionPool(self._open_connection, size=self._config.pool_size)
        # Whatever is wrong with the DSN, the server or the role shall be said now.
        async with pool.acquire():
            pass
        return pool

    async def _open_connection(self) -> Any:
        config = self._config
        made = await asyncpg.connect(
            config.dsn,
            timeout=10,
            command_timeout=config.command_timeout_seconds,
            statement_cache_size=0 if self.pooled else config.statement_cache_size,
            server_settings={} if self.pooled else {**PINS, "application_name": "pgqrs"},
        )
        return await self._lineage.looked_at(made)

    # -- units of work -----------------------------------------------------------------------------------

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        deadline = time.monotonic() + self._config.retry_seconds
        attempt = 0
        reply_lost = False
        while True:
            # Asked before each try: the store may have been closed between two of them.
            self._check()
            attempt += 1
            try:
                return await self._perform_once(work, kind, retried=reply_lost)
            except _Failed as failed:
                error, lost = failed.error, failed.reply_lost and kind is not Kind.READ
                if lost and not idempotent:
                    raise ConnectionFailed(
                        f"the connection to {self._config.safe_dsn} broke before the reply came "
                        f"({_shown(error)}); the call may or may not have been carried out",
                        ambiguous=True,
                    ) from error
                reply_lost = reply_lost or lost
                if time.monotonic() > deadline:
                    raise _unreachable(self._config, error, ambiguous=reply_lost) from error
                log.debug("try %d failed (%s), trying again", attempt, _shown(error))
                await asyncio.sleep(_RETRY.delay(attempt))

    async def _perform_once(
        self, work: Callable[[Database], Coroutine[Any, Any, T]], kind: Kind, *, retried: bool
    ) -> T:
        """One try; raises `_Failed` for what is worth another."""
        sent = committing = False
        connection: Any = None
        try:
            connection = await self._pool.take(self._config.command_timeout_seconds)
            session = Session(connection, self.dialect, self.clock, self.journal, retried=retried)
            sent = True
            if kind is not Kind.UNIT and not self.pooled:
                result = await work(session)
            else:
                async with self._transaction(connection):
                    result = await work(session)
                    committing = True
            if faults.armed:
                faults.reach_reply(connection)
            return result  # noqa: TRY300 - one way out is enough
        except PgqrsError:
            raise
        except asyncio.CancelledError:
            # Also where no transaction was begun: between Parse and Sync one is open all the same, with locks.
            if connection is not None:
                await _rolled_back(connection)
            raise
        except Exception as error:
            self._end_if_unfit(connection, error)
            in_doubt = committing or (sent and kind in (Kind.STATEMENT, Kind.LEASE) and not self.pooled)
            explained = self._explained(error, in_doubt=in_doubt)
            if explained is error:
                raise
            raise explained from error
        finally:
            if connection is not None:
                self._pool.give(connection)

    def _end_if_unfit(self, connection: Any, error: Exception) -> None:
        if isinstance(error, _UNFIT):
            _end(connection)
        if isinstance(error, TimeoutError) and connection is not None:
            # Whatever made this one hang has happened to the others, too: do not try them one by one.
            self._pool.end_idle()

    def _explained(self, error: Exception, *, in_doubt: bool) -> Exception:
        """What it means for the call: worth another try, something for a person, or an error of ours as it is."""
        if isinstance(error, (*_UNDONE, *_REFUSED)):
            return _Failed(error, reply_lost=False)
        if isinstance(error, asyncpg.IntegrityConstraintViolationError):
            return IntegrityViolation(str(error))
        if isinstance(error, _BROKEN):
            mistaken = isinstance(error, asyncpg.InterfaceError) and not _is_closed(error)
            return error if mistaken else _Failed(error, reply_lost=in_doubt)
        return _refusal(error, self._config) if isinstance(error, asyncpg.PostgresError) else error

    @asynccontextmanager
    async def _transaction(self, connection: Any) -> AsyncIterator[None]:
        """BEGIN with the pins where the connection cannot carry them itself, all in one message."""
        await connection.execute(_PIN_LOCALLY if self.pooled else "begin")
        try:
            yield
            if faults.armed:
                faults.reach_commit(connection)
        except Exception:
            if not connection.is_closed():
                await _rolled_back(connection)
            raise
        await connection.execute("commit")

    def _check(self) -> None:
        self._owner.check()
        if self._closed:
            raise ConnectionFailed("this store is closed; connect again")
        if asyncio.get_running_loop() is not self._loop:
            raise ConnectionFailed(
                "this store belongs to another event loop; connect once per loop (PostgreSQL connections "
                "cannot be shared between loops)"
            )

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        return await self.perform(lambda unit: unit.fetch(query, **params), kind=Kind.STATEMENT, idempotent=False)

    async def execute(self, query: Query, **params: Any) -> int:
        return await self.perform(lambda unit: unit.execute(query, **params), kind=Kind.STATEMENT, idempotent=False)

    async def hears_hints(self, *, seconds: float) -> bool:
        """Whether a hint that is sent now arrives within that time."""
        if self._listener is None:
            return False
        return await arrives(self, self._config.listen_dsn or self._config.dsn, seconds=seconds)

    async def close(self) -> None:
        if self._closed:
            return
        if self._owner.is_child():
            # The sockets and the selector are the parent's: closing them here makes it deaf there.
            self._closed = True
            return
        try:
            await self._notifier.close()
            self._closed = True
            if self._listener is not None:
                await self._listener.close()
            async with asyncio.timeout(5):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()
        except BaseException:
            self._closed = True
            self._pool.terminate()
            raise


class _Failed(Exception):
    """One try came to nothing, and another may do better."""

    def __init__(self, error: Exception, *, reply_lost: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.reply_lost = reply_lost


def _end(connection: Any) -> None:
    if connection is not None:
        connection.terminate()


async def _rolled_back(connection: Any) -> None:
    """Shielded: a cancelled caller must not leave a connection inside a transaction."""
    rollback = asyncio.ensure_future(connection.execute("rollback", timeout=2))
    rollback.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.shield(rollback)
    except Exception:  # noqa: BLE001 - nobody's concern: the caller has a word of its own, cancelled or failed
        _end(connection)
    except BaseException:
        # Cancelled once more: the pool must not get a connection that is still busy.
        _end(connection)
        raise


def _is_closed(error: asyncpg.InterfaceError) -> bool:
    """asyncpg tells a closed connection and a wrong argument by the same class."""
    text = str(error)
    return "closed" in text or "closing" in text or "connection" in text


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _unreachable(config: Config, error: BaseException, *, ambiguous: bool = False) -> ConnectionFailed:
    # Some client errors quote the DSN: its secrets must not travel in a message.
    text = _shown(error)
    if config.dsn in text:
        text = text.replace(config.dsn, masked(config.dsn))
    if isinstance(error, asyncpg.ClientConfigurationError | ValueError):
        text = type(error).__name__ + ": the DSN cannot be understood"
    if isinstance(error, ConnectionRefusedError):
        text += "; is PostgreSQL running there?"
    return ConnectionFailed(f"cannot use {config.safe_dsn}: {text}", ambiguous=ambiguous)


def _refusal(error: asyncpg.PostgresError, config: Config) -> PgqrsError | asyncpg.PostgresError:
    """Errors of the server that a person can act on; anything else is ours and goes up as it is."""
    if isinstance(error, asyncpg.UndefinedTableError | asyncpg.UndefinedColumnError | asyncpg.InvalidSchemaNameError):
        return SchemaNotInstalled(f"{error}; look at schema {config.schema!r} with `pgqrs schema verify`")
    if isinstance(error, _ACTED_ON):
        return ConnectionFailed(f"{config.safe_dsn} refused: {error}; nothing of this call was written")
    return error
