"""LISTEN and NOTIFY, as hints: outside the writing transactions, coalesced, and missed by nobody."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any

import asyncpg

from pgqrs.db.database import Kind
from pgqrs.db.hints import Hints
from pgqrs.db.queries import Query
from pgqrs.retry import Backoff
from pgqrs.shutdown_budgets import LAST_HINTS_SECONDS
from pgqrs.tasks import detached

if TYPE_CHECKING:
    from pgqrs.db.drivers.postgres.driver import PostgresDriver

log: logging.Logger = logging.getLogger("pgqrs.db")

# A hint that a crash loses is no loss: it need not wait for the disk.
_NOTIFY = Query("notify", "select set_config('synchronous_commit', 'off', true), pg_notify(:channel, :payload)")
# A payload may have less than 8,000 bytes; beyond that everybody may as well look.
_MOST_BYTES = 7_900
# After one the next waits so long: whoever enqueues one by one pays for a hint now and then, not for each.
_GAP_SECONDS = 0.005
_RECONNECT = Backoff(base=0.2, cap=3.0)


def channel_of(schema: str) -> str:
    """One channel per schema: tenants do not wake each other."""
    return f"pgqrs_{schema}"


class Notifier:
    """Tells other processes. While one NOTIFY is under way the next topics gather."""

    def __init__(self, driver: PostgresDriver, schema: str) -> None:
        self._driver = driver
        self._channel = channel_of(schema)
        self._pending: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    def tell(self, topics: frozenset[int]) -> None:
        self._pending |= topics
        if self._task is None or self._task.done():
            self._task = detached(self._send(), name="pgqrs-notify")

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=LAST_HINTS_SECONDS)
            self._task.cancel()

    async def _send(self) -> None:
        while self._pending:
            topics, self._pending = self._pending, set()
            payload = ",".join(map(str, topics))
            if len(payload) > _MOST_BYTES:
                payload = "*"
            try:
                await self._driver.perform(
                    lambda unit, payload=payload: unit.fetch(_NOTIFY, channel=self._channel, payload=payload),  # type: ignore[misc]
                    kind=Kind.READ,
                    idempotent=True,
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end close()
                # A hint only: whoever waits will find the work by polling.
                log.debug("hint not sent: %s", error)
            await asyncio.sleep(_GAP_SECONDS)


async def arrives(driver: PostgresDriver, dsn: str, *, seconds: float) -> bool:
    """Whether what is told on the driver's connections is heard on one to `dsn`.

    A pooler in transaction mode takes LISTEN, and then never says a word.
    """
    channel = f"pgqrs_probe_{secrets.token_hex(8)}"
    heard = asyncio.Event()
    connection: Any = None
    try:
        async with asyncio.timeout(seconds):
            connection = await asyncpg.connect(dsn, timeout=seconds, statement_cache_size=0)
            await connection.add_listener(channel, lambda *_: heard.set())
            await driver.perform(
                lambda unit: unit.fetch(_NOTIFY, channel=channel, payload=""), kind=Kind.READ, idempotent=True
            )
            await heard.wait()
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    finally:
        if connection is not None:
            connection.terminate()
    return True


class Listener:
    """Hears other processes, on a connection of its own; after a break it listens again and rings every bell."""

    def __init__(self, dsn: str, schema: str, hints: Hints) -> None:
        self._dsn = dsn
        self._channel = channel_of(schema)
        self._hints = hints
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = detached(self._run(), name="pgqrs-listen")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        attempt = 0
        while True:
            try:
                await self._listen()
                attempt = 0
            except Exception as error:  # noqa: BLE001 - a listener that has ended would never come back
                log.debug("not listening (%s), trying again", type(error).__name__)
            attempt += 1
            await asyncio.sleep(_RECONNECT.delay(attempt))

    async def _listen(self) -> None:
        """Until the connection breaks."""
        connection = await asyncpg.connect(
            self._dsn, timeout=10, server_settings={"application_name": "pgqrs listen"}
        )
        try:
            broken = asyncio.Event()
            connection.add_termination_listener(lambda _: broken.set())
            await connection.add_listener(self._channel, self._heard)
            # What was announced while nobody listened is found by looking once.
            self._hints.wake()
            while not broken.is_set():
                # A connection whose other end is gone without a word shows only when something is sent.
                try:
                    async with asyncio.timeout(10):
                        await broken.wait()
                except TimeoutError:
                    await connection.execute("select 1", timeout=5)
        finally:
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        # Anybody may send anything here: what is not a list of ids wakes everybody, and harms nobody.
        try:
            self._hints.wake(frozenset(map(int, str(payload).split(","))))
        except ValueError:
            self._hints.wake()
