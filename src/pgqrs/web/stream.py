"""GET /stream: hints of what has changed, as server-sent events. A hint is no data: whoever gets one asks again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from pgqrs.web.access import Scope, check_same_site
from pgqrs.web.problems import Problem
from pgqrs.web.resources.shapes import Shape
from pgqrs.web.routing import Asked, Endpoint
from pgqrs.web.watching import Hint, Watcher

# Proxies close what is silent for half a minute or more.
HEARTBEAT_SECONDS = 15.0
# How long a browser waits before it comes back.
RETRY_MILLISECONDS = 2_000
MOST_STREAMS = 100
# The first look at a database takes a moment; one that is away is waited for no longer.
STARTING_SECONDS = 5.0
CONTENT_TYPE = "text/event-stream"


class StreamAsked(Shape):
    """As the header Last-Event-ID, for clients that cannot set it."""

    last_event_id: str | None = None


async def stream(asked: Asked) -> Response:
    check_same_site(asked.request)
    watcher: Watcher = asked.request.app.state.watcher
    headers = {"content-type": f"{CONTENT_TYPE}; charset=utf-8", "x-accel-buffering": "no"}
    if asked.request.method == "HEAD":
        return Response(headers=headers)
    if watcher.closed or watcher.listeners >= MOST_STREAMS:
        raise Problem(503, "too-many-streams", f"{MOST_STREAMS} streams are open", headers={"retry-after": "10"})
    after = asked.request.headers.get("last-event-id") or asked.query.last_event_id
    return _Stream(_lines(asked, watcher, after), watcher, headers)


class _Stream(StreamingResponse):
    """Counts among the listeners exactly as long as its connection lasts."""

    def __init__(self, lines: AsyncIterator[bytes], watcher: Watcher, headers: dict[str, str]) -> None:
        super().__init__(lines, headers=headers)
        self._watcher = watcher

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        with self._watcher.listening():
            # Before a client hears that the stream is open, nothing may change unseen.
            await self._watcher.started(STARTING_SECONDS)
            await super().__call__(scope, receive, send)


async def _lines(asked: Asked, watcher: Watcher, after: str | None) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    place = watcher.place(after)
    while not watcher.closed:
        for number, hint in watcher.since(place):
            place = number
            yield _message(hint, watcher.event_id(number))
        if watcher.since(place) or await watcher.wait(HEARTBEAT_SECONDS):
            continue
        # A token that was revoked meanwhile hears no more.
        if not await _may_still(asked):
            return
        yield b": still here\n\n"


async def _may_still(asked: Asked) -> bool:
    try:
        caller = await asked.access.caller_of(asked.request)
    except Problem:
        return False
    return caller is not None and caller.may(Scope.READ)


def _message(hint: Hint, event_id: str) -> bytes:
    data: dict[str, Any] = {"kind": hint.kind, "id": hint.id}
    return f"id: {event_id}\ndata: {json.dumps(data)}\n\n".encode()


ENDPOINTS = (
    Endpoint(
        "GET",
        "/stream",
        stream,
        Scope.READ,
        'Hints of what has changed, `{"kind", "id"}`, as server-sent events',
        query=StreamAsked,
        gives=str,
        media=CONTENT_TYPE,
        headers=(("Last-Event-ID", "Go on after this hint"),),
    ),
)
