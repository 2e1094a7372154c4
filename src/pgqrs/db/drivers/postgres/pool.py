"""Connections to PostgreSQL, a few of them, taken and given back without a task, a timer or a round trip."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

# What has lain idle for longer is closed, when the next one is given back.
_IDLE_SECONDS = 300.0


class ConnectionPool:
    """Up to `size` connections; the one that was used last is used next, so that those that are too many grow old.

    First come, first served: a connection that is given back goes to the caller that has waited longest. Later ones
    wait behind, so there are idle ones only while no caller waits.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size: int) -> None:
        self._connect = connect
        self._size = size
        self._all: set[Any] = set()
        # Those that are being made count, too.
        self._count = 0
        self._idle: deque[tuple[Any, float]] = deque()
        # Each gets a connection, or None: a place for one that it makes itself.
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._closed = False
        self._emptied: asyncio.Future[None] | None = None

    async def take(self, seconds: float) -> Any:
        """A connection that is open; TimeoutError when there is none within that time."""
        if self._closed:
            raise asyncpg.InterfaceError("the pool is closed")
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._forget(connection)
        if self._count < self._size and not self._waiting:
            self._count += 1
            return await self._made()
        connection = await self._turn(seconds)
        if connection is not None and connection.is_closed():
            # Broken on its way here: its place is this one's.
            self._all.discard(connection)
            connection = None
        return await self._made() if connection is None else connection

    async def _turn(self, seconds: float) -> Any:
        turn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                return await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # It was this one's turn: another's, then.
                self._pass_on(turn.result())
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def give(self, connection: Any) -> None:
        self._pass_on(connection)

    def _pass_on(self, connection: Any) -> None:
        """A connection, or (None) a place for one, to the next who waits."""
        if connection is None:
            self._count -= 1
        elif connection.is_closed() or self._closed:
            _end(connection)
            self._forget(connection)
        elif not self._call_next(connection):
            self._put_aside(connection)
            return
        else:
            return
        if self._count < self._size and not self._closed and self._call_next(None):
            self._count += 1
        if not self._count and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _put_aside(self, connection: Any) -> None:
        now = time.monotonic()
        self._idle.append((connection, now))
        oldest, since = self._idle[0]
        if now - since > _IDLE_SECONDS:
            self._idle.popleft()
            self._forget(oldest)
            _end(oldest)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        connection = await self.take(60)
        try:
            yield connection
        finally:
            self.give(connection)

    async def close(self) -> None:
        """Waits until all of them are given back."""
        self._closed = True
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(asyncpg.InterfaceError("the pool is closed"))
        while self._idle:
            connection, _ = self._idle.pop()
            self._forget(connection)
            await connection.close()
        if self._count:
            self._emptied = self._emptied or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    def end_idle(self) -> None:
        """Those that lie idle are made anew when they are needed."""
        while self._idle:
            connection, _ = self._idle.pop()
            self._forget(connection)
            _end(connection)

    def terminate(self) -> None:
        """At once, whatever they are doing."""
        self._closed = True
        for connection in list(self._all):
            _end(connection)

    async def _made(self) -> Any:
        """In a place that is counted already."""
        try:
            connection = await self._connect()
        except BaseException:
            self._pass_on(None)
            raise
        self._all.add(connection)
        return connection

    def _forget(self, connection: Any) -> None:
        if connection in self._all:
            self._all.remove(connection)
            self._count -= 1

    def _call_next(self, connection: Any) -> bool:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False


def _end(connection: Any) -> None:
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
