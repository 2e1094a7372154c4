"""PostgreSQL: an asyncpg pool with pinned plans, and what to do when the connection breaks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import asyncpg

from pgqrs import faults
from pgqrs.audit import AuditPolicy
from pgqrs.clock import Clock
from pgqrs.config import Config
from pgqrs.db.database import Database, Kind, Row, WorkFailed
from pgqrs.db.dialect import Dialect
from pgqrs.db.driver import Owner
from pgqrs.db.drivers.postgres.errors import BROKEN, UNFIT, Failed, explained, given_up, shown, unreachable
from pgqrs.db.drivers.postgres.listen import Listener, Notifier, arrives
from pgqrs.db.drivers.postgres.pool import ConnectionPool
from pgqrs.db.drivers.postgres.session import PostgresSession, SessionSettings
from pgqrs.db.drivers.postgres.timeline import TimelineWatch
from pgqrs.db.drivers.postgres.times import TimeSafeConnection
from pgqrs.db.hints import Hints
from pgqrs.db.queries import Query
from pgqrs.errors import ConfigError, ConnectionFailed, PgqrsError
from pgqrs.retry import Backoff
from pgqrs.shutdown_budgets import POOL_CLOSE_SECONDS
from pgqrs.tasks import detached

T = TypeVar("T")
log: logging.Logger = logging.getLogger("pgqrs.db")

_RETRY = Backoff(base=0.05, cap=2.0)


class PostgresDriver:
    """The pool."""

    retried = False
    several_processes = True

    def __init__(self, config: Config, clock: Clock) -> None:
        self.clock = clock
        self.dialect: Dialect = Dialect("postgres", config.schema)
        self.audit_policy: AuditPolicy = config.audit_policy
        self.hints: Hints = Hints()
        self._config = config
        self._owner = Owner()
        self._lineage = TimelineWatch()
        self._loop = asyncio.get_running_loop()
        # A pooler in transaction mode keeps no setting and no prepared statement for us.
        self.pooled: bool = config.statement_cache_size == 0
        self._pool: ConnectionPool
        self._settings: SessionSettings
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
                raise unreachable(self._config, error) from error
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
            raise unreachable(self._config, error) from None
        except BROKEN as error:
            raise unreachable(self._config, error) from error

    async def _make_pool(self) -> ConnectionPool:
        self._settings = SessionSettings(self._config.dsn, pooled=self.pooled)
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
            server_settings=self._settings.at_start,
            connection_class=TimeSafeConnection,
        )
        self._check_encoding(made)
        await made.read_every_time()
        return await self._lineage.looked_at(made)

    def _check_encoding(self, connection: Any) -> None:
        """The server has said it with its greeting. Payloads hold any text, and so must the database."""
        encoding = connection.get_settings().server_encoding
        if encoding != "UTF8":
            connection.terminate()
            raise ConfigError(
                f"the database of {self._config.safe_dsn} has the encoding {encoding}, which cannot hold every text",
                hint="use one that was made with `create database ... encoding 'UTF8' template template0`",
            )

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
            except Failed as failed:
                error, lost = failed.error, failed.reply_lost and kind is not Kind.READ
                if lost and not idempotent:
                    raise ConnectionFailed(
                        f"the connection to {self._config.safe_dsn} broke before the reply came "
                        f"({shown(error, self._config)}); the call may or may not have been carried out",
                        ambiguous=True,
                    ) from error
                reply_lost = reply_lost or lost
                if time.monotonic() > deadline:
                    raise given_up(self._config, error, ambiguous=reply_lost) from error
                log.debug("try %d failed (%s), trying again", attempt, shown(error, self._config))
                await asyncio.sleep(_RETRY.delay(attempt))

    async def _perform_once(
        self, work: Callable[[Database], Coroutine[Any, Any, T]], kind: Kind, *, retried: bool
    ) -> T:
        """One try; raises `Failed` for what is worth another."""
        committing = False
        connection: Any = None
        session: PostgresSession | None = None
        try:
            connection = await self._pool.take(self._config.command_timeout_seconds)
            session = PostgresSession(
                connection, self.dialect, self.clock, self.audit_policy, self._settings, retried=retried
            )
            if kind is not Kind.UNIT and not self.pooled:
                result = await work(session)
            else:
                async with self._transaction(connection):
                    result = await work(session)
                    committing = True
            if faults.armed:
                faults.reach_reply(connection)
            return result  # noqa: TRY300 - one way out is enough
        except asyncio.CancelledError:
            # Also where no transaction was begun: between Parse and Sync one is open all the same, with locks.
            if connection is not None:
                await _rolled_back(connection)
            raise
        except BaseException as error:
            alone = session is not None and kind in (Kind.STATEMENT, Kind.LEASE) and not self.pooled
            meaning = self._failed(session, error, in_doubt=committing or alone)
            if meaning is error:
                raise
            raise meaning from error
        finally:
            if connection is not None:
                self._pool.give(connection)

    def _failed(self, session: PostgresSession | None, error: BaseException, *, in_doubt: bool) -> BaseException:
        """What the error of one try means; ends its connection if the next unit of work must not get it."""
        connection = None if session is None else session.connection
        if isinstance(error, WorkFailed):
            # An error that the user's function made itself did nothing to the connection; its statement may have.
            if session is not None and session.failed is not None:
                self._end_if_unfit(connection, session.failed)
            return error
        if isinstance(error, PgqrsError):
            return error
        if not isinstance(error, Exception):
            # SystemExit and the like: no time to roll back, and the pool must not get an open transaction.
            _end(connection)
            return error
        self._end_if_unfit(connection, error)
        return self._explained(error, in_doubt=in_doubt)

    def _end_if_unfit(self, connection: Any, error: Exception) -> None:
        if isinstance(error, UNFIT):
            _end(connection)
        if isinstance(error, TimeoutError) and connection is not None:
            # Whatever made this one hang has happened to the others, too: do not try them one by one.
            self._pool.end_idle()

    def _explained(self, error: Exception, *, in_doubt: bool) -> Exception:
        return explained(error, self._config, in_doubt=in_doubt)

    @asynccontextmanager
    async def _transaction(self, connection: Any) -> AsyncIterator[None]:
        """BEGIN with the pins where the connection cannot carry them itself, all in one message."""
        await connection.execute(self._settings.begin)
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
            raise ConnectionFailed("this store is closed", hint="connect again")
        if asyncio.get_running_loop() is not self._loop:
            raise ConnectionFailed(
                "this store belongs to another event loop",
                hint="connect once per loop (PostgreSQL connections cannot be shared between loops)",
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
            async with asyncio.timeout(POOL_CLOSE_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()
        except BaseException:
            self._closed = True
            self._pool.terminate()
            raise


def _end(connection: Any) -> None:
    if connection is not None:
        connection.terminate()


async def _rolled_back(connection: Any) -> None:
    """Shielded: a cancelled caller must not leave a connection inside a transaction."""
    rollback = detached(connection.execute("rollback", timeout=2), name="pgqrs-rollback")
    rollback.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.shield(rollback)
    except Exception:  # noqa: BLE001 - nobody's concern: the caller has a word of its own, cancelled or failed
        _end(connection)
    except BaseException:
        # Cancelled once more: the pool must not get a connection that is still busy.
        _end(connection)
        raise
