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
    """Up to `size` connections; the one that was used last is used next, so that those that are too many grow old."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size: int) -> None:
        self._connect = connect
        self._size = size
        self._all: set[Any] = set()
        # Those that are being made count, too.
        self._count = 0
        self._idle: deque[tuple[Any, float]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    async def take(self, seconds: float) -> Any:
        """A connection that is open; TimeoutError when there is none within that time."""
        while True:
            if self._closed:
                raise asyncpg.InterfaceError("the pool is closed")
            while self._idle:
                connection, _ = self._idle.pop()
                if not connection.is_closed():
                    return connection
                self._forget(connection)
            if self._count < self._size:
                return await self._made()
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                async with asyncio.timeout(seconds):
                    await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    # It was this one's turn: somebody else's, then.
                    self._call_next()
                raise

    def give(self, connection: Any) -> None:
        if connection.is_closed() or self._closed:
            _end(connection)
            self._forget(connection)
        else:
            now = time.monotonic()
            self._idle.append((connection, now))
            oldest, since = self._idle[0]
            if now - since > _IDLE_SECONDS:
                self._idle.popleft()
                self._forget(oldest)
                _end(oldest)
        self._call_next()

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
        while self._idle:
            connection, _ = self._idle.pop()
            self._forget(connection)
            await connection.close()
        for turn in self._waiting:
            _wake(turn)
        while self._count:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

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
        self._count += 1
        try:
            connection = await self._connect()
        except BaseException:
            self._count -= 1
            self._call_next()
            raise
        self._all.add(connection)
        return connection

    def _forget(self, connection: Any) -> None:
        if connection in self._all:
            self._all.remove(connection)
            self._count -= 1

    def _call_next(self) -> None:
        while self._waiting:
            if _wake(self._waiting.popleft()):
                return


def _wake(turn: asyncio.Future[None]) -> bool:
    if turn.done():
        return False
    turn.set_result(None)
    return True


def _end(connection: Any) -> None:
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
