"""What strikes, where, and how: `kill@before settlement.commit#2`, or by the order of points alone `kill@#9`.

One of these:

    kill        SIGKILL of the process
    error       what a driver raises when the database refuses, or has been away for too long
    stall       stopped until others have taken over and finished; its own clock stands still meanwhile, so that
                nothing but the fence in the database can stop it
    freeze      the same, and its own clock jumps when it goes on, as after SIGSTOP or a suspended laptop
    cancel      the program's task is cancelled
    disconnect  PostgreSQL: the server ends the connection in use, or all that lie idle; SQLite, Turso: an I/O error
                that ends the transaction
    wait        no fault, but a pause in the recovery: those that were stalled go on now, and meet one who holds the
                lease that they think is theirs
    lost        carried out and committed, but the reply is lost; PostgreSQL, elsewhere there is no way to lose it
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pgqrs
from pgqrs import faults
from pgqrs.faults import Point
from proof.crash.world import World

AROUND = ("before", "after")
INSIDE = ("sql", "commit")
# How long the server may take to end connections.
TERMINATED_SECONDS = 30
_TEXT = re.compile(r"(?P<mode>\w+)@(?:(?P<phase>\w+) (?P<name>[\w.]+))?#(?P<nth>\d+)")


@dataclass(frozen=True, slots=True)
class Fault:
    """The `nth` time that the point is reached; without a point, the `nth` that lies between two store calls."""

    mode: str
    nth: int
    point: Point | None = None

    @classmethod
    def of(cls, text: str) -> Fault:
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"not a fault: {text!r}; say it like kill@before settlement.commit#2")
        point = Point(found["phase"], found["name"]) if found["phase"] else None
        return cls(found["mode"], int(found["nth"]), point)

    @property
    def recovers(self) -> bool:
        """True where its process is the last one, and has to finish."""
        return self.mode == "wait"

    def __str__(self) -> str:
        return f"{self.mode}@{self.point or ''}#{self.nth}"


def modes(backend: str, phase: str) -> list[str]:
    """What can strike there; what means nothing there is left out, and so is never counted."""
    several = backend != "turso"
    match phase:
        case "before":
            found = ["kill", "error", "cancel"]
        case "after":
            # An error after the commit: only a server can be away by then.
            found = ["kill", "cancel", *(["error"] if backend == "postgres" else [])]
        case "sql" | "commit":
            found = ["kill", "error", "disconnect"]
        case _:
            return ["lost"]
    if phase in AROUND:
        # Turso lets nobody else use the file while the stalled process has it.
        found += ["stall", "freeze"] if several else []
        found += ["disconnect"] if backend == "postgres" else []
    return found


class Injected(Exception):
    """Says in a message that it was we."""


class _WriterAtRest:
    """Between two transactions of the thread that writes the file, whichever thread it is that asks."""

    def __init__(self, store: pgqrs.Store) -> None:
        self._lock = threading.Lock()
        driver: Any = store.database
        commit = driver._commit_together

        def commit_unless_stopped(*given: Any) -> bool:
            with self._lock:
                stop: bool = commit(*given)
                return stop

        driver._commit_together = commit_unless_stopped

    def acquire(self) -> bool:
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()


class _PoolAtRest:
    def __init__(self, store: pgqrs.Store) -> None:
        self._store = store

    def acquire(self) -> bool:
        pool = cast(Any, self._store.database)._pool
        return bool(len(pool._idle) == pool._count)

    def release(self) -> None:
        """It was never kept."""


class Striker:
    """Counts the points that a process reaches, and strikes at the one that it was told."""

    def __init__(self, fault: Fault | None, world: World) -> None:
        self.fault = fault
        self._world = world
        self._lock = threading.Lock()
        self._reached: Counter[Point] = Counter()
        self._between = 0
        self.points: list[tuple[Point, int]] = []
        self.struck = False
        self._at = Point("before", "")
        self.program: asyncio.Task[None] | None = None
        self._quiet = _PoolAtRest(world.store) if _is_postgres(world) else _WriterAtRest(world.store)

    @property
    def between(self) -> int:
        """How many points lay between two store calls."""
        return self._between

    def __call__(self, point: Point) -> Awaitable[None] | None:
        if self._world.looking or (point.phase in AROUND and not _is_between_calls()):
            return None
        with self._lock:
            self._reached[point] += 1
            nth = self._reached[point]
            self._between += point.phase in AROUND
            self.points.append((point, nth))
            fault = self.fault
            if self.struck or fault is None or (point.phase not in AROUND and fault.point is None):
                return None
            if (self._between if fault.point is None else nth) != fault.nth or fault.point not in (None, point):
                return None
            self.struck = True
        self._world.ledger.write("fault", fault=str(fault), at=str(point), giving=self._world.giving)
        strike: Callable[[], Awaitable[None] | None] = getattr(self, f"_{fault.mode}")
        self._at = point
        return strike()

    def _kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _error(self) -> None:
        if self._at.phase in AROUND:
            raise pgqrs.ConnectionFailed(f"injected {self._at}", ambiguous=self._at.phase == "after")
        raise _refusal(self._world.store.config.backend)

    def _stall(self) -> Awaitable[None]:
        return self._stop()

    _freeze = _wait = _stall

    async def _stop(self) -> None:
        """Where no transaction of this process keeps the others out: those end first."""
        while not self._quiet.acquire():
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._quiet.release()

    def _cancel(self) -> Awaitable[None]:
        assert self.program is not None
        self.program.cancel()
        return asyncio.sleep(0)

    def _disconnect(self) -> None:
        if not _is_postgres(self._world):
            faults.connection.get().execute("rollback")
            raise _refusal(self._world.store.config.backend)
        used = faults.connection.get()
        connections = [used] if used is not None else list(self._world.store.database._pool._all)
        _terminate(self._world.store.config.dsn, [each.get_server_pid() for each in connections])

    def _lost(self) -> None:
        raise ConnectionResetError(f"injected: the reply of {self._at.name} was lost")


def _is_between_calls() -> bool:
    """Not in a part of another store call: that is one transaction with the whole."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return not faults.call_under_way()


def _is_postgres(world: World) -> bool:
    return world.store.config.backend == "postgres"


def _refusal(backend: str) -> Exception:
    if backend == "postgres":
        import asyncpg

        return asyncpg.QueryCanceledError("injected: canceling statement due to statement timeout")
    if backend == "turso":
        import turso

        return turso.OperationalError("injected: disk I/O error")
    return sqlite3.OperationalError("injected: disk I/O error")


def _terminate(dsn: str, pids: list[int]) -> None:
    """The server ends these connections, and they are gone when this returns."""
    import psycopg

    until = time.monotonic() + TERMINATED_SECONDS
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(pid) from unnest(%s::int[]) as pid", (pids,))
        # Asked often: the server itself, told to wait for them one by one, looks every 100 ms.
        while admin.execute("select from pg_stat_activity where pid = any(%s)", (pids,)).fetchone() is not None:
            if time.monotonic() > until:
                raise TimeoutError(f"some of the connections {pids} are still there after {TERMINATED_SECONDS} s")
            time.sleep(0.001)
