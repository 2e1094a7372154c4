"""Sees commits of other processes on the same SQLite file, by `PRAGMA data_version`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pgqrs.db.hints import Hints

log: logging.Logger = logging.getLogger("pgqrs.db")

# A message of another process is to be seen within 100 ms. The pragma reads a few bytes of shared memory
# (some 3 microseconds), so 25 looks a second cost nothing that can be measured.
LOOK_EVERY_SECONDS = 0.04
# After an error; polling finds other processes' work in the meantime.
RESUME_SECONDS = 1.0


class DataVersionWatcher:
    """Rings every bell when the file has changed; rests while nobody waits."""

    def __init__(self, connect: Callable[[], Any], hints: Hints) -> None:
        self._connect = connect
        self._hints = hints
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Somebody waits: start looking, or go on."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="pgqrs-watcher", daemon=True)
            thread.start()
            self._thread = thread
        self._wanted.set()

    def stop(self) -> None:
        self._stop.set()
        self._wanted.set()

    def close(self) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self._watch(resumed=failures > 0)
            except Exception as error:  # noqa: BLE001 - a watcher that has ended would never come back
                level = logging.DEBUG if failures else logging.WARNING
                log.log(level, "cannot see what other processes write (%s), trying again", error)
                failures += 1
                self._stop.wait(RESUME_SECONDS)

    def _watch(self, *, resumed: bool) -> None:
        """Until it is told to stop, or an error."""
        connection = self._connect()
        try:
            seen = self._version(connection)
            if resumed:
                # What was written while nothing was watched is found by looking once.
                self._hints.wake()
            while not self._stop.wait(LOOK_EVERY_SECONDS):
                if not self._hints.waited_for:
                    self._rest()
                version = self._version(connection)
                if version != seen:
                    seen = version
                    self._hints.wake()
        finally:
            connection.close()

    def _rest(self) -> None:
        self._wanted.clear()
        # Asked again after the clear: whoever came in between, to wait or to close, is seen here.
        if not self._hints.waited_for and not self._stop.is_set():
            self._wanted.wait()

    @staticmethod
    def _version(connection: Any) -> int:
        return int(connection.execute("pragma data_version").fetchone()[0])
