"""One time for all processes of a case: set by hand, in memory that they share."""

from __future__ import annotations

import mmap
import struct
import time
from datetime import UTC, datetime, timedelta

_START = datetime(2030, 1, 1, tzinfo=UTC)
_monotonic = time.monotonic


class SharedClock:
    """Made before the fork. Nobody ever waits for time: whoever wants it to pass advances it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16)

    def now(self) -> datetime:
        return _START + timedelta(seconds=self._read(0))

    def advance(self, seconds: float) -> None:
        self._write(0, self._read(0) + seconds)

    def awake(self) -> None:
        """Processes that follow it notice that the time has passed in which they were stopped."""
        self._write(8, self._read(0))

    def follow(self) -> None:
        """From now on this process's own clock jumps when it is awoken, as it does for a process that was stopped."""
        time.monotonic = lambda: _monotonic() + self._read(8)

    def close(self) -> None:
        self._memory.close()

    def _read(self, at: int) -> float:
        seconds: float = struct.unpack_from("d", self._memory, at)[0]
        return seconds

    def _write(self, at: int, seconds: float) -> None:
        struct.pack_into("d", self._memory, at, seconds)
