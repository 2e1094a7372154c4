"""GET /stream: hints of what has changed, as server-sent events. A hint is no data: whoever gets one asks again."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.responses import Response

from pgqrs.web.api.shapes import RequestShape
from pgqrs.web.auth.access import Scope
from pgqrs.web.live.change_feed import ChangeFeed, Hint
from pgqrs.web.problems import Problem
from pgqrs.web.routing import Endpoint, RequestContext, Streamed
from pgqrs.web.server.exchange import ANSWER_SECONDS

# Proxies close what is silent for half a minute or more.
HEARTBEAT_SECONDS = 15.0
# Between two looks at whether the caller may still listen. An application's `authorize` may ask its database.
CHECK_SECONDS = 1.0
# How long a browser waits before it comes back.
RETRY_MILLISECONDS = 2_000
MOST_STREAMS = 100
MOST_STREAMS_PER_CALLER = 50
# Then the client comes back, as after any other break; a token is checked then, and a place may go to another.
MOST_STREAM_SECONDS = 3600.0
# The first look at a database takes a moment; one that is away is waited for no longer.
STARTING_SECONDS = 5.0
CONTENT_TYPE = "text/event-stream"


class StreamAsked(RequestShape):
    """As the header Last-Event-ID, for clients that cannot set it."""

    last_event_id: str | None = None


async def stream(asked: RequestContext) -> Response:
    watcher: ChangeFeed = asked.request.app.state.watcher
    headers = {"content-type": f"{CONTENT_TYPE}; charset=utf-8", "x-accel-buffering": "no"}
    if asked.request.method == "HEAD":
        return Response(headers=headers)
    after = asked.request.headers.get("last-event-id") or asked.query.last_event_id
    share = asked.request.app.state.stream_share
    return _ChangeStream(watcher, _lines(asked, watcher, after), share, asked.actor, headers)


class _ChangeStream(Streamed):
    """Counts among the listeners exactly as long as its connection lasts."""

    def __init__(self, watcher: ChangeFeed, *given: Any) -> None:
        super().__init__(*given)
        self._watcher = watcher

    def check(self) -> None:
        if self._watcher.closed or self._watcher.listeners >= MOST_STREAMS:
            raise Problem(503, "too-many-streams", f"{MOST_STREAMS} streams are open", headers={"retry-after": "10"})
        super().check()

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._watcher.listening(), super().counted():
            yield

    async def ready(self) -> None:
        # Before a client hears that the stream is open, nothing may change unseen.
        await self._watcher.started(STARTING_SECONDS)


async def _lines(asked: RequestContext, watcher: ChangeFeed, after: str | None) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    place, checked, is_quiet = watcher.place(after), time.monotonic(), False
    ends_at = time.monotonic() + MOST_STREAM_SECONDS
    while not watcher.closed and time.monotonic() < ends_at:
        # A token that was revoked meanwhile hears no more, however much happens.
        if is_quiet or time.monotonic() - checked >= CHECK_SECONDS:
            if not await _may_still(asked):
                return
            checked = time.monotonic()
        if is_quiet:
            yield b": still here\n\n"
        for number, hint in watcher.since(place):
            place = number
            yield _message(hint, watcher.event_id(number))
        is_quiet = not watcher.since(place) and not await watcher.wait(HEARTBEAT_SECONDS)


async def _may_still(asked: RequestContext) -> bool:
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
        answer_seconds=MOST_STREAM_SECONDS + ANSWER_SECONDS,
    ),
)
