"""What every request passes first (whom it is addressed to, where it comes from, how large it is), and what every
answer carries."""

from __future__ import annotations

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgqrs.web.auth.proxies import address_of, tells_of_proxy
from pgqrs.web.problems import Problem, too_large

# A value of the largest size (Config.max_payload_bytes) with room for what is around it.
ROOM_AROUND = 64 * 1024

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Nothing to others. Not `no-referrer`: with that a browser says `Origin: null` of our own forms, too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


# A name or an address, and perhaps a port; `localhost:7890@evil` is none.
HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?", re.ASCII)


def _is_here(client: tuple[str, int] | None) -> bool:
    """Whether the peer of the connection is on this machine; unlike the Host header the client cannot choose it."""
    address = address_of(client[0] if client else None)
    return address is not None and address.is_loopback


class Guard:
    """The outermost part of the application. `local`: only callers on this machine, with no proxy in between."""

    def __init__(
        self, inner: ASGIApp, *, hosts: frozenset[str], most_bytes: int, local: bool = False, name_it: str = ""
    ) -> None:
        self._inner = inner
        self._name_it = name_it
        self._hosts = hosts
        self._local = local
        self._most = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                # What a page shows is for whoever asked, and may be another thing the next second.
                headers.setdefault("cache-control", "no-store")
            await send(message)

        problem = self._problem(Headers(scope=scope), scope.get("client"))
        if problem is not None:
            await problem.response()(scope, receive, send_guarded)
            return
        await self._inner(scope, self._counted(receive), send_guarded)

    def _problem(self, headers: Headers, client: tuple[str, int] | None) -> Problem | None:
        host = headers.get("host", "")
        match = HOST.fullmatch(host)
        if match is None or match.group(1).lower() not in self._hosts or len(headers.getlist("host")) != 1:
            # A page elsewhere whose name was made to point at us (DNS rebinding) is told nothing.
            return Problem(421, "wrong-host", f"this server is not {host[:200]!r}", hint=self._name_it)
        told = tells_of_proxy(headers) if self._local else None
        if self._local and (told is not None or not _is_here(client)):
            why = "" if told is None else f"; the header {told[:100]!r} tells of one"
            return Problem(
                403,
                "local-only",
                f"this server answers callers on its own machine only, without a proxy in between{why}",
                hint="start it with tokens: pgqrs token create NAME --scope read; pgqrs serve --tokens pgqrs.tokens",
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15:
            return Problem(400, "bad-request", "Content-Length is no number")
        return too_large(self._most) if int(length) > self._most else None

    def _counted(self, receive: Receive) -> Receive:
        """A body may also come in pieces, without having said how long it is."""
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise too_large(self._most)
            return message

        return counted
