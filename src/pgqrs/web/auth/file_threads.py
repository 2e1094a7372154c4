"""Threads for what waits for a disk or a lock: while it waits, every other route is answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pgqrs.web.problems import Problem

# At the same time. They take turns in any case; more of them are refused and not kept waiting.
MOST_THREADS = 16

_T = TypeVar("_T")


class FileThreads:
    """Runs slow calls in daemon threads: the end of the process does not wait for a disk that hangs."""

    def __init__(self) -> None:
        self._running = 0
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], _T]) -> _T:
        """Return what the call returns. A caller that gives up leaves it running, and it counts until it ends."""
        with self._lock:
            if self._running >= MOST_THREADS:
                raise Problem(
                    503,
                    "busy",
                    f"{MOST_THREADS} others wait for the disk of this server",
                    hint="try again in a moment",
                    headers={"retry-after": "5"},
                )
            self._running += 1
        made: Future[_T] = Future()
        made.set_running_or_notify_cancel()
        threading.Thread(target=self._run, args=(work, made), name="pgqrs-web-file", daemon=True).start()
        return await asyncio.wrap_future(made)

    def _run(self, work: Callable[[], _T], made: Future[_T]) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self._ended()
            made.set_exception(error)
        else:
            self._ended()
            made.set_result(result)

    def _ended(self) -> None:
        with self._lock:
            self._running -= 1
