"""A TCP proxy between a client and a server that loses replies, falls silent, is slow or cuts the line, as told."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

HOST = "127.0.0.1"

# How a query of PostgreSQL's protocol begins: simple, parse, bind. Not so the first words of a connection.
_QUERY = frozenset(b"QPB")
_RESET = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Link:
    """A client's connection and ours to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    # True when the server's next word is not to be heard.
    losing: bool = False

    def cut(self) -> None:
        for writer in (self.client, self.server):
            _reset(writer)


class Proxy:
    """Listens on `port`, forwards to `target`; both ends see a line that breaks as lines do."""

    def __init__(self, target: int) -> None:
        # The server's port; connections that are made later go there.
        self.target = target
        self.port = 0
        self.latency_seconds = 0.0
        self._links: set[_Link] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._losing = 0
        self.lost = 0

    @property
    def server_side_ports(self) -> set[int]:
        """Of our connections to the server: as pg_stat_activity.client_port shows them."""
        return {link.server.get_extra_info("sockname")[1] for link in self._links if not link.server.is_closing()}

    def lose_replies(self, count: int = 1) -> None:
        """The next queries reach the server, and each time the line breaks when it answers."""
        self._losing += count

    def fall_silent(self) -> None:
        """Nothing goes through in either direction, and no end is told."""
        self._flowing.clear()

    def heal(self) -> None:
        self._losing = 0
        self.latency_seconds = 0.0
        self._flowing.set()

    def cut(self) -> None:
        for link in list(self._links):
            link.cut()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._flowing.wait()
            server_reader, server = await asyncio.open_connection(HOST, self.target)
        except OSError:
            # As if there was nobody at this port.
            _reset(writer)
            return
        link = _Link(writer, server)
        self._links.add(link)
        try:
            pumps = {
                asyncio.create_task(self._ask(link, reader)),
                asyncio.create_task(self._answer(link, server_reader)),
            }
            _, rest = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in rest:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._links.discard(link)
            # An end that said goodbye gets there before the line is closed.
            for each in (writer, server):
                each.close()

    async def _ask(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            await self._delay()
            if self._losing and data[0] in _QUERY:
                self._losing -= 1
                link.losing = True
            link.server.write(data)
            await link.server.drain()

    async def _answer(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            await self._delay()
            if link.losing:
                self.lost += 1
                link.cut()
                return
            link.client.write(data)
            await link.client.drain()

    async def _delay(self) -> None:
        if self.latency_seconds:
            await asyncio.sleep(self.latency_seconds)
        await self._flowing.wait()


@asynccontextmanager
async def proxying(target: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(target)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        with suppress(asyncio.CancelledError, OSError):
            await proxy.serve(reader, writer)

    server = await asyncio.start_server(serve, HOST, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Transports close their sockets in the rounds of the loop that follow.
        for _ in range(5):
            await asyncio.sleep(0)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Without a goodbye: the other end gets a reset, as from a machine that knows nothing of this connection."""
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.is_closing():
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
