"""One request and its answer, within limits: headers, unread bodies, and a time by which the client has read it.

This part is plain ASGI, so that it also holds where the application is mounted on another server. `pgqrs serve` adds
what only the owner of the sockets can do (connections.py): the two meet in CONNECTION.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgqrs.web.problems import Problem

MOST_HEADER_BYTES = 16 * 1024
# From the first byte of an answer to the last that the system takes from us: 8 MB at 2 Mbit/s.
ANSWER_SECONDS = 30.0
# A server keeps what it was given until the client has read it: so it is given little at a time.
PIECE_BYTES = 64 * 1024
# The rest of a body that no route wants is read for so long and so far, as a connection that is closed before its
# client has said everything may lose the answer.
UNREAD_SECONDS = 1.0
UNREAD_BYTES = 256 * 1024
# In a request's scope, set by the route: how many seconds its answer may take, where ANSWER_SECONDS are too few.
ALLOWED = "pgqrs.answer_seconds"


class ClientConnection(Protocol):
    """What the owner of the socket is told about an exchange."""

    def exchange_began(self) -> None: ...

    def waits_for_body(self, *, waits: bool) -> None: ...

    def answering(self, *, unread: bool) -> None: ...

    def exchange_ended(self) -> None: ...

    def abort(self) -> None: ...


# Set by `pgqrs serve` for the tasks of a connection; None on other servers.
CONNECTION: ContextVar[ClientConnection | None] = ContextVar("pgqrs_connection", default=None)


class TooSlow(Exception):
    """The client did not read its answer in time."""


class Exchange:
    """The outermost middleware: every request passes it once, before anything is known about its sender."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        connection = CONNECTION.get()
        body, answer = _Body(scope, receive, connection), _Answer(scope, send)

        async def send_in_time(message: Message) -> None:
            if message["type"] == "http.response.start":
                await body.read_the_rest()
                if not body.is_read:
                    # What still comes would be taken for the next request, or keep the connection open without end.
                    MutableHeaders(scope=message)["connection"] = "close"
                if connection is not None:
                    connection.answering(unread=not body.is_read)
            await answer.send(message)

        if connection is not None:
            connection.exchange_began()
        try:
            problem = _problem(scope)
            answering: ASGIApp = self._inner if problem is None else problem.response()
            await answering(scope, body.receive, send_in_time)
        except TooSlow:
            # A client that does not read cannot be told. Other servers close when they see that the answer stops.
            if connection is not None:
                connection.abort()
        finally:
            if connection is not None:
                connection.exchange_ended()


def _problem(scope: Scope) -> Problem | None:
    headers = Headers(scope=scope)
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    close = {"connection": "close"}
    if size > MOST_HEADER_BYTES:
        detail = f"the address and headers take {size:,} bytes; at most {MOST_HEADER_BYTES:,} are read"
        return Problem(431, "headers-too-large", detail, headers=close)
    if "content-length" in headers and "transfer-encoding" in headers:
        # Two readers may see two ends of this body, and then two different requests behind it.
        detail = "Content-Length and Transfer-Encoding exclude each other"
        return Problem(400, "bad-request", detail, hint="send one of them", headers=close)
    return None


class _Body:
    """Knows whether all of the request's body has come."""

    def __init__(self, scope: Scope, receive: Receive, connection: ClientConnection | None) -> None:
        headers = Headers(scope=scope)
        self._receive = receive
        self._connection = connection
        self.is_read = "transfer-encoding" not in headers and headers.get("content-length", "0") in ("", "0")
        # Reading would ask the client for a body that no route wants.
        self._waits_to_be_asked = "expect" in headers

    async def receive(self) -> Message:
        if self._connection is None or self.is_read:
            return self._seen(await self._receive())
        self._connection.waits_for_body(waits=True)
        try:
            return self._seen(await self._receive())
        finally:
            self._connection.waits_for_body(waits=False)

    def _seen(self, message: Message) -> Message:
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.is_read = True
        return message

    async def read_the_rest(self) -> None:
        if self._waits_to_be_asked or self.is_read:
            return
        left = UNREAD_BYTES
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                while left > 0 and not self.is_read:
                    left -= len((await self.receive()).get("body", b""))
        except TimeoutError:
            return


class _Answer:
    """Passes an answer on in pieces, each of which must be taken in time."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._ends_at: float | None = None

    async def send(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            self._ends_at = time.monotonic() + float(self._scope.get(ALLOWED, ANSWER_SECONDS))
            await self._pass_on(message)
            return
        whole, more = memoryview(message.get("body", b"")), message.get("more_body", False)
        # The last piece goes with the end of the message, an empty one too.
        for place in range(0, max(len(whole), 1), PIECE_BYTES):
            is_last = place + PIECE_BYTES >= len(whole)
            piece = bytes(whole[place : place + PIECE_BYTES])
            await self._pass_on({**message, "body": piece, "more_body": more or not is_last})

    async def _pass_on(self, message: Message) -> None:
        if self._ends_at is None:
            raise RuntimeError("an answer began without its status")
        # A piece by itself gets no longer either: a stream has no end by which it must be read.
        seconds = min(self._ends_at - time.monotonic(), ANSWER_SECONDS)
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._send(message)
        except TimeoutError:
            raise TooSlow from None
