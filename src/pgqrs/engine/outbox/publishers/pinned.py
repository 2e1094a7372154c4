"""An httpx transport to addresses that were checked: the URL's name is for `Host` and TLS, and is not resolved here.

Publishers call it without httpx's client, which logs the URL of every request and parses the `Location` of every
redirect, also of those that it does not follow.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from typing import Any

import httpcore2
import httpx2

from pgqrs.errors import PublishFailed

# The head of an answer must fit; what a receiver sends beyond it is never read.
MOST_BYTES = 64 * 1024


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Sends one request to the first of the addresses that can be reached, and gives the status of the answer."""

    def __init__(self, addresses: Sequence[str], *, tls: ssl.SSLContext | None, connect_seconds: float) -> None:
        self._network = _Network(addresses, connect_seconds)
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=tls, max_connections=1, network_backend=self._network)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raise PublishFailed without a word of the answer. The caller limits the time of the whole."""
        url = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        sent = httpcore2.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        try:
            answer = await self._pool.handle_async_request(sent)
        except httpcore2.ProtocolError:
            raise PublishFailed("the answer is not HTTP/1.1") from None
        return httpx2.Response(answer.status, request=request)

    async def aclose(self) -> None:
        # A connection that is cancelled during its TLS handshake is not in the pool yet.
        await self._network.aclose()
        await self._pool.aclose()


class _Network(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses, whatever host it is asked for."""

    def __init__(self, addresses: Sequence[str], connect_seconds: float) -> None:
        self._addresses = addresses
        self._connect_seconds = connect_seconds
        self._network = httpcore2.AnyIOBackend()
        self._made: _Stream | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's; ours is for all addresses, and TLS, together
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        del host, timeout, local_address, socket_options
        ends_at = asyncio.get_running_loop().time() + self._connect_seconds
        reason = "no address"
        for address in self._addresses:
            try:
                made = await self._network.connect_tcp(address, port, timeout=_left(ends_at))
            except httpcore2.ConnectTimeout:
                raise PublishFailed(f"no connection within {self._connect_seconds:g} s") from None
            except httpcore2.ConnectError as error:
                reason = type(_root_of(error)).__name__
            else:
                self._made = _Stream(made, ends_at, self._connect_seconds)
                return self._made
        raise PublishFailed(f"no connection: {reason}")

    async def aclose(self) -> None:
        if self._made is not None:
            await self._made.aclose()


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection of which at most MOST_BYTES are read."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, ends_at: float, connect_seconds: float) -> None:
        self._inner = inner
        self._ends_at = ends_at
        self._connect_seconds = connect_seconds
        self.received = 0

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's; ours began with the connection
    ) -> httpcore2.AsyncNetworkStream:
        del timeout
        try:
            self._inner = await self._inner.start_tls(ssl_context, server_hostname, timeout=_left(self._ends_at))
        except httpcore2.ConnectTimeout:
            raise PublishFailed(f"no connection within {self._connect_seconds:g} s") from None
        except httpcore2.ConnectError as error:
            # Another address would have the same certificate; and a half-open door is no door.
            raise PublishFailed(f"TLS: {_tls_reason(_root_of(error))}") from None
        return self

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's
        if self.received >= MOST_BYTES:
            raise PublishFailed(f"the head of the answer is longer than {MOST_BYTES} bytes")
        try:
            found = await self._inner.read(min(max_bytes, MOST_BYTES - self.received), timeout)
        except (httpcore2.ReadError, ssl.SSLError):
            raise PublishFailed("the connection broke before an answer came") from None
        if not found:
            raise PublishFailed("the connection was closed before an answer came")
        self.received += len(found)
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(ends_at: float) -> float:
    return max(ends_at - asyncio.get_running_loop().time(), 0.0)


def _root_of(error: BaseException) -> BaseException:
    """What the system said: the libraries raise their own errors from it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _tls_reason(error: BaseException) -> str:
    return str(getattr(error, "verify_message", "") or getattr(error, "reason", "") or "failed")
