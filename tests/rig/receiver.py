"""A web server on loopback that answers as it is told: well, badly, slowly, without end."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes
    # The first line and the headers, as they came.
    head: bytes = b""


@dataclass
class Receiver:
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    # How it answers: bytes that are sent as they are, or one of hang, trickle, endless, endless head, drop.
    answer: bytes | str = OK
    sent: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.requests.append(Request(first.split()[1], headers, body, head))
            await self._answer(writer)

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        match self.answer:
            case "hang":
                await asyncio.Event().wait()
            case "trickle":
                for byte in itertools.chain(b"HTTP/1.1 200 OK\r\nX-Y: ", itertools.repeat(b"z"[0])):
                    await self._send(writer, bytes([byte]))
                    await asyncio.sleep(0.01)
            case "endless":
                await self._send(writer, b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
                while True:
                    await self._send(writer, b"x" * 65536)
            case "endless head":
                await self._send(writer, b"HTTP/1.1 200 OK\r\n")
                while True:
                    await self._send(writer, b"X-Y: " + b"z" * 65536 + b"\r\n")
            case "drop":
                return
            case bytes(answer):
                await self._send(writer, answer)
            case _:
                raise AssertionError(self.answer)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.sent += len(data)


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await receiver.serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
        # Transports close their sockets in the rounds of the loop that follow.
        for _ in range(5):
            await asyncio.sleep(0)
