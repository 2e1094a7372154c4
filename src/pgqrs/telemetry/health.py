"""The small HTTP server of a worker process: `/healthz`, `/readyz`, `/metrics`. Reads only, and needs no library.

Whoever can reach it may be anybody: one short request per connection, within a few seconds, from so many at a time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

from pgqrs.errors import ConfigError

log: logging.Logger = logging.getLogger("pgqrs.health")

_MOST_HEAD_BYTES = 8_192
_MOST_UNREAD_BYTES = 65_536
_MOST_CONNECTIONS = 64
# For the whole exchange: who sends a byte now and then is cut off all the same.
_SECONDS_PER_EXCHANGE = 5.0
# A probe asks the database; a flood of probes asks it no more than so often.
_PROBED_FOR_SECONDS = 1.0
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_PLAIN = "text/plain; charset=utf-8"


class ProbeReply(NamedTuple):
    status: HTTPStatus
    text: str
    content_type: str = _PLAIN
    headers: Mapping[str, str] = {}


# Gives what is wrong, in words; nothing when all is well.
Probe = Callable[[], Awaitable[list[str]]]
Exposition = Callable[[], tuple[str, str]]


@asynccontextmanager
async def serving_health(
    probe: Probe, *, metrics: Exposition | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[int]:
    """Serves until the context is left; gives the port, which is a free one for 0."""
    answering = _ProbeConnections(probe, metrics, host)
    try:
        server = await asyncio.start_server(answering.connected, host, port, limit=_MOST_HEAD_BYTES)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port} for health checks: {error.strerror or error}",
            hint="choose another port",
        ) from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await answering.close()


class _ProbeConnections:
    """The connections of one server."""

    def __init__(self, probe: Probe, metrics: Exposition | None, host: str) -> None:
        self._host = host
        self._probe = _Remembered(probe)
        self._metrics = metrics
        # In the order in which they came.
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MOST_CONNECTIONS:
            # The one that has been here longest makes place: a probe asks at once, and is answered at once. Were the
            # new one refused, connections that say nothing would make this worker look dead.
            oldest = next(iter(self._connections))
            self._connections.pop(oldest).transport.abort()
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._exchange(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def close(self) -> None:
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer."""
        try:
            async with asyncio.timeout(_SECONDS_PER_EXCHANGE):
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    writer.write(await self._answered(reader))
                    await writer.drain()
                    writer.write_eof()
                    # What is left unread would make the system cut the connection, and our answer might be lost.
                    await reader.read(_MOST_UNREAD_BYTES)
        except TimeoutError:
            log.debug("a health check took too long")
        finally:
            writer.transport.abort()

    async def _answered(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(ProbeReply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers\n"))
        first, *lines = head.split(b"\r\n")
        match first.split(b" "):
            case [(b"GET" | b"HEAD") as method, path, version] if version.startswith(b"HTTP/1."):
                if not self._is_addressed_to_us(lines):
                    return _response(ProbeReply(HTTPStatus.MISDIRECTED_REQUEST, "another host was meant\n"))
                answer = await self._answer(path.partition(b"?")[0])
                return _response(answer, with_body=method == b"GET")
            case [_, _, version] if version.startswith(b"HTTP/"):
                allowed = {"Allow": "GET, HEAD"}
                return _response(ProbeReply(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n", headers=allowed))
            case _:
                return _response(ProbeReply(HTTPStatus.BAD_REQUEST, "not HTTP\n"))

    def _is_addressed_to_us(self, lines: list[bytes]) -> bool:
        """On the loopback only by its names: a page in a browser may call this address by one of its own."""
        if self._host not in _LOOPBACK:
            return True
        named = [
            value.strip() for name, _, value in (each.partition(b":") for each in lines) if name.lower() == b"host"
        ]
        return all(re.sub(rb":\d+$", b"", each).decode("latin-1").lower() in _LOOPBACK for each in named)

    async def _answer(self, path: bytes) -> ProbeReply:
        match path:
            case b"/healthz":
                # The event loop has come here: that is all it says.
                return ProbeReply(HTTPStatus.OK, "ok\n")
            case b"/readyz":
                problems = await self._probe()
                if problems:
                    return ProbeReply(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{each}\n" for each in problems))
                return ProbeReply(HTTPStatus.OK, "ready\n")
            case b"/metrics" if self._metrics is not None:
                content_type, text = self._metrics()
                return ProbeReply(HTTPStatus.OK, text, content_type)
            case _:
                return ProbeReply(HTTPStatus.NOT_FOUND, "there is /healthz, /readyz and /metrics\n")


class _Remembered:
    """A probe whose answer holds for a moment; those who ask meanwhile wait for the same one."""

    def __init__(self, probe: Probe) -> None:
        self._ask = probe
        self._lock = asyncio.Lock()
        self._asked_at = -_PROBED_FOR_SECONDS
        self._problems: list[str] = []

    async def __call__(self) -> list[str]:
        async with self._lock:
            if time.monotonic() - self._asked_at >= _PROBED_FOR_SECONDS:
                self._problems = await self._ask()
                self._asked_at = time.monotonic()
            return self._problems


def _response(answer: ProbeReply, *, with_body: bool = True) -> bytes:
    body = answer.text.encode("utf-8", "replace")
    head = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}", *(f"{k}: {v}" for k, v in head.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body if with_body else b"")
