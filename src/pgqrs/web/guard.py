"""What every request passes first (whom it is addressed to, how large it is), and what every answer carries."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgqrs.web.problems import Problem

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


class Guard:
    """The outermost part of the application."""

    def __init__(self, inner: ASGIApp, *, hosts: frozenset[str], most_bytes: int) -> None:
        self._inner = inner
        self._hosts = hosts
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

        problem = self._problem(Headers(scope=scope))
        if problem is not None:
            await problem.response()(scope, receive, send_guarded)
            return
        await self._inner(scope, self._counted(receive), send_guarded)

    def _problem(self, headers: Headers) -> Problem | None:
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] if ":" in host else host
        if name.lower() not in self._hosts or len(headers.getlist("host")) != 1:
            # A page elsewhere whose name was made to point at us (DNS rebinding) is told nothing.
            return Problem(421, "wrong-host", f"this server is not {host[:200]!r}", hint="name it with --allow-host")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15:
            return Problem(400, "bad-request", "Content-Length is no number")
        return self._too_large() if int(length) > self._most else None

    def _counted(self, receive: Receive) -> Receive:
        """A body may also come in pieces, without having said how long it is."""
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise self._too_large()
            return message

        return counted

    def _too_large(self) -> Problem:
        return Problem(413, "too-large", f"the body has more than {self._most:,} bytes")
