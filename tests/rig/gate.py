"""A gate in front of PostgreSQL: it may be shut, or let connections hang without a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

HOST = "127.0.0.1"


class Gate:
    """Forwards bytes on a loopback port of its own, in the event loop of the test."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        assert parts.hostname is not None
        assert parts.port is not None
        self._there = (parts.hostname, parts.port)
        self._parts = parts
        self._server: asyncio.Server | None = None
        self._port = 0
        self._pairs: list[_Pair] = []
        # Each piece of data waits so long, on its way there and on its way back.
        self.delay_seconds = 0.0

    @property
    def dsn(self) -> str:
        user = f"{self._parts.username}@" if self._parts.username else ""
        return urlunsplit(self._parts._replace(netloc=f"{user}{HOST}:{self._port}"))

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """As a server that is gone: connections break, and no new ones are accepted."""
        if self._server is not None:
            self._server.close()
        self.break_all()

    def break_all(self) -> None:
        for pair in self._pairs:
            pair.end()
        self._pairs.clear()

    def swallow(self) -> None:
        """The connections that there are stay open, and nothing comes through; new ones are as they should be."""
        for pair in self._pairs:
            pair.swallowing = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._there)
        pair = _Pair(self, writer, far_writer)
        self._pairs.append(pair)
        await asyncio.gather(pair.forward(reader, far_writer), pair.forward(far_reader, writer))


class _Pair:
    """A connection and its continuation."""

    def __init__(self, gate: Gate, *writers: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._writers = writers
        self.swallowing = False

    def end(self) -> None:
        for writer in self._writers:
            writer.close()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._gate.delay_seconds:
                    await asyncio.sleep(self._gate.delay_seconds)
                if not self.swallowing:
                    writer.write(data)
        if not self.swallowing:
            self.end()


@asynccontextmanager
async def gate(dsn: str) -> AsyncIterator[Gate]:
    opened = Gate(dsn)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.shut()
