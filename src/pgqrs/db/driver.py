"""A driver: the pool side of the protocol, with the hints and the clock that belong to it."""

from __future__ import annotations

import os
from typing import Protocol

from pgqrs.clock import Clock
from pgqrs.db.database import Database
from pgqrs.db.hints import Hints
from pgqrs.errors import ConnectionFailed


class Driver(Database, Protocol):
    """What `open_driver` gives."""

    clock: Clock
    hints: Hints
    several_processes: bool

    async def close(self) -> None:
        """Finish what was handed in, then let go of every connection and thread. Idempotent."""
        ...


class Owner:
    """Remembers the process that connected: a forked child must not speak on its parent's connections."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_child(self) -> bool:
        return os.getpid() != self._pid

    def check(self) -> None:
        if self.is_child():
            raise ConnectionFailed(
                "this store was connected before a fork", hint="connect again in the child process"
            )
