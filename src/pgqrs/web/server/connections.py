"""Connections of `pgqrs serve`: how many there are, whose they are, and until when each may keep us waiting.

The server's own protocol sits inside (`http=`, a setting of uvicorn): it gets the bytes, and a transport that closes
gently. Every phase that waits for the client has an end. When there is no room, the connection that has kept us
waiting longest makes place, so that silent clients never keep others out.

    phase      waits for                        ends after                     makes place for others
    HEADERS    the head of a request            HEADER_SECONDS                 yes
    WORKING    us; and the body, the reading    the route's, exchange.py       while the client must send or read
    IDLE       the next request, the reading    uvicorn's keep-alive; FLUSH    yes
    ENDING     the client to hang up            LINGER_SECONDS                 yes
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import time
from collections import Counter
from collections.abc import Container
from enum import Enum, auto
from typing import Any, cast

import h11

from pgqrs.web.auth.proxies import address_of
from pgqrs.web.server.exchange import ANSWER_SECONDS, CONNECTION

log: logging.Logger = logging.getLogger("pgqrs.web")

MOST_CONNECTIONS = 500
# Half: however many one address opens, as many are left for all others. Proxies that are named have no share.
MOST_PER_ADDRESS = 250
# Connections that are being told that there is no room.
MOST_REFUSED = 100
# Read from a connection in one turn of the event loop, before the others have theirs. Parsing 256 KB, as much as
# asyncio reads otherwise, takes 0.5 s when they are a body in chunks of one byte; 4 KB take 8 ms.
READ_BYTES = 4 * 1024
# A client that has just connected has so long to ask: of a burst, those behind the limit are refused, and not those
# before it closed unheard.
GRACE_SECONDS = 0.5
# A request whose headers take longer to arrive holds a connection for nothing.
HEADER_SECONDS = 10.0
# After the end is said, what the client still sends is read for so long: a socket closed with unread bytes is reset,
# and a reset takes answers from the client that it has not read yet.
LINGER_SECONDS = 1.0
# What the system has not taken from us when an answer is complete (a piece of it at most) goes within this. An idle
# connection ends then, too: uvicorn forgets its own, shorter limit when a byte comes in the moment an answer ends.
FLUSH_SECONDS = ANSWER_SECONDS
# That there is no room is told this often.
FULL_TOLD_SECONDS = 60.0

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 5\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
)
_FULL_BODY = b'{"type":"about:blank","title":"busy","status":503,"code":"busy","detail":"all connections are in use"}'


class Phase(Enum):
    HEADERS = auto()
    WORKING = auto()
    IDLE = auto()
    ENDING = auto()


class Gate:
    """All connections of a server; decides who gets in, and who makes place for it."""

    def __init__(
        self, *, trusted: Container[str | None] = (), most: int | None = None, per_address: int | None = None
    ) -> None:
        self._trusted = trusted
        self._most = MOST_CONNECTIONS if most is None else most
        self._share = MOST_PER_ADDRESS if per_address is None else per_address
        # In the order in which they came.
        self._open: dict[GuardedConnection, str] = {}
        self._of: Counter[str] = Counter()
        # Those that are told that there is no room, in the order in which they came.
        self._refused: dict[GuardedConnection, None] = {}
        self._full_told_at = -math.inf
        # Set when the server ends: then there is no time to linger.
        self.is_closing = False

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: GuardedConnection, host: str | None) -> bool:
        """Whether there is room, if need be in place of another connection that waits for its client."""
        address = share_of(host)
        if host not in self._trusted and self._of[address] >= self._share:
            rivals = [each for each, of in self._open.items() if of == address]
        elif len(self._open) >= self._most:
            rivals = list(self._open)
        else:
            rivals = None
        if rivals is not None:
            until = time.monotonic() - GRACE_SECONDS
            waiting = [(each.waits_since, each) for each in rivals if each.waits_since is not None]
            since, longest = min(waiting, key=lambda each: each[0], default=(until, None))
            if longest is None or since > until:
                return False
            longest.abort()
        self._open[connection] = address
        self._of[address] += 1
        return True

    def refuse(self, connection: GuardedConnection) -> None:
        """Counts it among those that are told that there is no room; of too many, the first has heard it long ago."""
        now = time.monotonic()
        if now - self._full_told_at >= FULL_TOLD_SECONDS:
            self._full_told_at = now
            log.warning("all connections are in use; new ones are refused")
        if len(self._refused) >= MOST_REFUSED:
            next(iter(self._refused)).abort()
        self._refused[connection] = None

    def left(self, connection: GuardedConnection) -> None:
        self._refused.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address]

    def close(self) -> None:
        """Ends what is still open; the server has waited for it as long as it may."""
        for each in [*self._open, *self._refused]:
            each.abort()


def share_of(host: str | None) -> str:
    """What shares a share: an IPv4 address, or the network of an IPv6 host, who has all addresses in it."""
    address = address_of(host)
    if address is None:
        return host or "?"
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)


class GuardedConnection(asyncio.BufferedProtocol):
    """A connection, with the server's own protocol inside."""

    def __init__(self, gate: Gate, inner: Any) -> None:
        self._gate = gate
        self._inner = inner
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(READ_BYTES)
        self._phase = Phase.HEADERS
        # More than one while the next has begun, and the one before it has yet to clear up.
        self._exchanges = 0
        self._since = 0.0
        self._stalled: float | None = None
        self._admitted = False
        # The head of a request is here; its exchange begins with the next turn of the event loop.
        self._asked = False
        # The client has sent something that was not read to its end.
        self._unread = False

    @property
    def waits_since(self) -> float | None:
        """Since when we have been waiting for the client; None while it waits for us."""
        if self._phase is Phase.WORKING:
            return self._stalled
        return None if self._asked else self._since

    # -- what the event loop tells ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._admitted = self._gate.admit(self, peer[0] if isinstance(peer, tuple) else None)
        if not self._admitted:
            self._gate.refuse(self)
            self._transport.write(_FULL % (len(_FULL_BODY), _FULL_BODY))
            self.end()
            return
        self._enter(Phase.HEADERS, HEADER_SECONDS)
        self._inner.connection_made(_Transport(self._transport, self))

    def get_buffer(self, sizehint: int) -> bytearray:
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._phase is Phase.ENDING:
            return
        data = bytes(self._buffer[:nbytes])
        if self._phase is Phase.IDLE:
            self._enter(Phase.HEADERS, HEADER_SECONDS)
        self._unread = True
        self._asked = self._phase is Phase.HEADERS and b"\r\n\r\n" in data
        # The task that answers is made in here, and so knows its connection.
        token = CONNECTION.set(self)
        try:
            self._inner.data_received(data)
        except h11.ProtocolError as error:
            # uvicorn lets it through when a body is broken while its answer is sent.
            log.warning("a connection was closed: %s", error)
            self.abort()
        finally:
            CONNECTION.reset(token)

    def eof_received(self) -> bool | None:
        return bool(self._inner.eof_received()) if self._admitted else None

    def pause_writing(self) -> None:
        self._stalled = time.monotonic()
        if self._admitted:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._stalled = None
        if self._admitted:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._gate.left(self)
        if self._admitted:
            self._inner.connection_lost(exc)

    # -- what the exchange tells -----------------------------------------------------------------------------

    def exchange_began(self) -> None:
        self._exchanges += 1
        if self._phase is not Phase.ENDING:
            self._enter(Phase.WORKING, None)

    def waits_for_body(self, *, waits: bool) -> None:
        # Since the exchange began: a client that sends a byte now and then is not taken for a new one.
        self._stalled = self._since if waits else None

    def answering(self, *, unread: bool) -> None:
        self._unread = unread

    def exchange_ended(self) -> None:
        self._exchanges -= 1
        if not self._exchanges and self._phase is not Phase.ENDING:
            self._enter(Phase.IDLE, FLUSH_SECONDS)

    def abort(self) -> None:
        """At once: what is unread or unsent is lost."""
        self._forget()
        self._gate.left(self)
        self._transport.abort()

    def end(self) -> None:
        """Says the end, and hangs up when the client has, or after a moment."""
        if self._phase is Phase.ENDING or self._transport.is_closing():
            return
        flushing = self._transport.get_write_buffer_size() > 0
        if self._gate.is_closing or not (self._unread or flushing or not self._admitted):
            self._transport.close()
            return
        self._enter(Phase.ENDING, FLUSH_SECONDS if flushing else LINGER_SECONDS)
        # The server may have stopped reading, and an end that is not read does not end it.
        self._transport.resume_reading()
        self._transport.write_eof()

    @property
    def is_ending(self) -> bool:
        return self._phase is Phase.ENDING or self._transport.is_closing()

    # -- time ------------------------------------------------------------------------------------------------

    def _enter(self, phase: Phase, seconds: float | None) -> None:
        self._asked = False
        self._phase, self._since = phase, time.monotonic()
        self._forget()
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._late)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        # A transport that is closing waits for the client to read, if need be without end.
        told = self._phase is Phase.ENDING or self._transport.is_closing()
        if told or (self._phase is Phase.IDLE and self._transport.get_write_buffer_size()):
            self.abort()
        else:
            self.end()


class _Transport:
    """The transport as the server's protocol sees it: closing it is gentle."""

    def __init__(self, transport: asyncio.Transport, connection: GuardedConnection) -> None:
        self._transport = transport
        self._connection = connection

    def close(self) -> None:
        self._connection.end()

    def is_closing(self) -> bool:
        return self._connection.is_ending

    def write(self, data: bytes) -> None:
        if not self._connection.is_ending:
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
