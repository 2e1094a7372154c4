"""The addresses of one receiver's name, asked for in threads that nothing else needs.

The system's resolver cannot be interrupted, and takes half a minute or more to give up. asyncio would call it in the
pool that the whole loop shares: a handful of receivers whose name server is silent would then stop every route, and
the end of the process would wait for them.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import Future

from pgqrs.errors import PublishFailed

# Of one publisher, at the same time. All but the newest have been given up, and only wait to be answered.
MOST_LOOKUPS = 4


class Lookups:
    """The resolver of one publisher. Requests at the same time share a lookup, unless that takes too long."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._newest: Future[list[str]] | None = None
        self._began = 0.0
        self._lock = threading.Lock()
        self._running = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return the addresses, or raise OSError, or PublishFailed if too many hang. The caller limits the time."""
        # Running already, so that a caller who gives up cannot cancel it for the others.
        return await asyncio.wrap_future(self._current(host, port))

    def _current(self, host: str, port: int) -> Future[list[str]]:
        with self._lock:
            newest = self._newest
            now = time.monotonic()
            if newest is not None and not newest.done() and now - self._began < self._patience_seconds:
                return newest
            if self._running >= MOST_LOOKUPS:
                raise PublishFailed(
                    f"{MOST_LOOKUPS} lookups of the name still hang", hint="does its name server answer?"
                )
            made: Future[list[str]] = Future()
            made.set_running_or_notify_cancel()
            # A daemon: the end of the process does not wait for a name server.
            thread = threading.Thread(
                target=self._look_up, args=(host, port, made), name=f"pgqrs-dns-{host}", daemon=True
            )
            thread.start()
            self._newest, self._began = made, now
            self._running += 1
            return made

    def _look_up(self, host: str, port: int, made: Future[list[str]]) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result = [str(entry[4][0]) for entry in found]
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self._ended()
            made.set_exception(error)
        else:
            self._ended()
            made.set_result(result)

    def _ended(self) -> None:
        with self._lock:
            self._running -= 1
