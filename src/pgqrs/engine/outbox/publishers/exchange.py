"""One HTTP/1.1 request and the status of its answer: bounded in time and memory, and nothing else of HTTP."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import cast

from pgqrs.errors import PublishFailed

# The head of an answer must fit; what a receiver sends beyond it is never read.
MOST_BYTES = 64 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [^\r\n]*)?\r\n")
_END_OF_HEAD = b"\r\n\r\n"


def request_text(path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """The request as it goes over the wire; names and values have been checked."""
    head = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join((*head, "", "")).encode("ascii") + body


class Exchange(asyncio.BufferedProtocol):
    """Sends the request when connected, then reads into one buffer until it has the head of the answer."""

    def __init__(self, request: bytes) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting any more when it breaks.
        self.status.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.received = 0
        self._request = request
        self._buffer = bytearray(MOST_BYTES)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        # Once it is decided, what still comes in is overwritten.
        return memoryview(self._buffer)[0 if self.status.done() else self.received :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.status.done():
            return
        self.received += nbytes
        try:
            status = _status_in(bytes(self._buffer[: self.received]))
        except ValueError:
            self._fail("the answer is not HTTP/1.1")
        else:
            if status is not None:
                self.status.set_result(status)
                self._stop()
            elif self.received == MOST_BYTES:
                self._fail(f"the head of the answer is longer than {MOST_BYTES} bytes")

    def eof_received(self) -> None:
        self._fail("the connection was closed before an answer came")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection broke before an answer came" if exc else "the connection was closed")

    def close(self) -> None:
        # Not `close`: that would wait for a receiver to read what is still to be sent.
        if self._transport is not None:
            self._transport.abort()
        self.status.cancel()

    def _fail(self, message: str) -> None:
        if not self.status.done():
            self.status.set_exception(PublishFailed(message))
            self._stop()

    def _stop(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _status_in(received: bytes) -> int | None:
    """The status of the first answer that is final; None while its head is incomplete."""
    while True:
        head, end, rest = received.partition(_END_OF_HEAD)
        if not end:
            # Not to be read as HTTP, however much more comes.
            if not b"HTTP/1.".startswith(received[:7]):
                raise ValueError
            return None
        found = _STATUS_LINE.match(head + b"\r\n")
        if found is None:
            raise ValueError
        status = int(found[1])
        if status >= 200:
            return status
        received = rest


async def exchange(
    addresses: list[str], port: int, request: bytes, *, tls: ssl.SSLContext | None, host: str, connect_seconds: float
) -> int:
    """The status that the first of the addresses that can be reached gives. The caller limits the whole."""
    made = await _connected(addresses, port, request, tls=tls, host=host, connect_seconds=connect_seconds)
    try:
        return await made.status
    finally:
        made.close()


async def _connected(
    addresses: list[str], port: int, request: bytes, *, tls: ssl.SSLContext | None, host: str, connect_seconds: float
) -> Exchange:
    loop = asyncio.get_running_loop()
    reason = "no address"
    try:
        async with asyncio.timeout(connect_seconds):
            for address in addresses:
                try:
                    _, made = await loop.create_connection(
                        lambda: Exchange(request), address, port, ssl=tls, server_hostname=host if tls else None
                    )
                except ssl.SSLError as error:
                    # Another address would have the same certificate; and a half-open door is no door.
                    raise PublishFailed(f"TLS: {_tls_reason(error)}") from None
                except OSError as error:
                    reason = type(error).__name__
                else:
                    return made
    except TimeoutError:
        raise PublishFailed(f"no connection within {connect_seconds:g} s") from None
    raise PublishFailed(f"no connection: {reason}")


def _tls_reason(error: ssl.SSLError) -> str:
    return str(getattr(error, "verify_message", "") or error.reason or "failed")
