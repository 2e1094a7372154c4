"""Keeps the leases of a process alive, from a thread of its own, and fences the process when it cannot."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.drivers import open_driver
from pgqrs.db.tables import messages, workers
from pgqrs.errors import PgqrsError

log = logging.getLogger("pgqrs.worker")

_BEATS_APART_SECONDS = 1.0


@dataclass(slots=True)
class _Held:
    token: int
    run_id: int
    lease_seconds: float
    renewed: float
    lost: Callable[[], None]
    # True when its outcome is on the way to the database: whether the lease still held, that commit will say.
    settling: bool = False

    @property
    def due(self) -> float:
        """When it must be given up: a tenth of a lease before the database would give it to somebody else."""
        return self.renewed + self.lease_seconds * 0.9


class Heartbeat:
    """All leases renewed in one statement, every third of the shortest.

    A step that blocks the event loop does not block this thread. If the database cannot be reached until shortly
    before a lease would run out, its holder is told that it is lost: the worker stops before the database hands over.
    """

    def __init__(self, db: Driver, config: Config, *, worker_id: int, lease_seconds: float) -> None:
        self._db = db
        self._config = config
        self._worker_id = worker_id
        self._lease_seconds = lease_seconds
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        # Set when the thread shall look at once: a shorter lease has come, somebody asks, or it is to end.
        self._sooner = threading.Event()
        self._asked = threading.Event()
        self._beaten = time.monotonic()

    def hold(
        self, message_id: int, token: int, lost: Callable[[], None], *, run_id: int, lease_seconds: float
    ) -> None:
        """From now on the lease is renewed; `lost` is called once, from the thread, when it is gone."""
        with self._lock:
            self._held[message_id] = _Held(token, run_id, lease_seconds, time.monotonic(), lost)
        if lease_seconds < self._lease_seconds:
            # The thread may be in the middle of a wait that is too long for this one.
            self._sooner.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pgqrs-heartbeat", daemon=True)
            self._thread.start()

    def holds(self, message_id: int, token: int) -> bool:
        """False when the lease is lost, or would have to be given up: this process may have been frozen."""
        with self._lock:
            held = self._held.get(message_id)
            return held is not None and held.token == token and held.due > time.monotonic()

    def settle(self, message_id: int, token: int) -> None:
        """Its outcome is about to be recorded, and the message with it gone: from now on that is no loss."""
        with self._lock:
            held = self._held.get(message_id)
            if held is not None and held.token == token:
                held.settling = True

    def let_go(self, message_id: int, token: int) -> None:
        with self._lock:
            held = self._held.get(message_id)
            if held is not None and held.token == token:
                del self._held[message_id]

    def heard(self, topics: frozenset[int] | None) -> None:
        """A hint: if it is about a run that is held here, somebody may have cancelled it, so ask now."""
        with self._lock:
            if topics is None:
                # Something was written somewhere: worth a look, but not for each of many.
                concerned = bool(self._held) and time.monotonic() - self._beaten > _BEATS_APART_SECONDS
            else:
                concerned = any(-held.run_id in topics for held in self._held.values())
        if concerned:
            self._asked.set()
            self._sooner.set()

    def close(self) -> None:
        self._stop.set()
        self._sooner.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._beat_forever())

    async def _beat_forever(self) -> None:
        """On PostgreSQL with a connection of its own; SQLite's writer serves any thread."""
        own: Driver | None = None
        try:
            while not await asyncio.to_thread(self._wait):
                try:
                    async with asyncio.timeout(self._patience()):
                        if own is None:
                            own = await self._connect()
                        await self._beat(own)
                except (PgqrsError, TimeoutError, OSError) as error:
                    log.warning("heartbeat failed: %s", error)
                self._give_up_what_is_due()
        finally:
            if own is not None and own is not self._db:
                await own.close()

    def _patience(self) -> float:
        """A third of a lease, but no longer than until the first lease must be given up."""
        with self._lock:
            due = min((held.due for held in self._held.values()), default=math.inf)
            shortest = min((held.lease_seconds for held in self._held.values()), default=math.inf)
        return min(self._lease_seconds / 3, shortest / 3, max(due - time.monotonic(), 0.01))

    def _wait(self) -> bool:
        """A third of a lease; True when it is time to end."""
        patience = self._patience()
        while self._sooner.wait(patience):
            self._sooner.clear()
            if self._stop.is_set():
                return True
            if self._asked.is_set():
                self._asked.clear()
                return False
            patience = self._patience()
        return self._stop.is_set()

    async def _connect(self) -> Driver:
        if not self._db.dialect.is_postgres:
            return self._db
        return await open_driver(self._config.with_changes(pool_size=1, listen_dsn=""), self._db.clock)

    async def _beat(self, db: Driver) -> None:
        with self._lock:
            fences = [(message_id, held.token) for message_id, held in self._held.items()]
            lengths = [held.lease_seconds for held in self._held.values()]
        started = self._beaten = time.monotonic()
        await workers.heartbeat(db, self._worker_id)
        kept = await messages.extend(db, fences, seconds=lengths) if fences else set()
        with self._lock:
            lost = []
            for message_id, token in fences:
                held = self._held.get(message_id)
                if held is None or held.token != token:
                    continue
                if message_id in kept:
                    held.renewed = started
                elif not held.settling:
                    lost.append(self._held.pop(message_id))
        for each in lost:
            each.lost()

    def _give_up_what_is_due(self) -> None:
        """Self-fencing."""
        with self._lock:
            due = [message_id for message_id, held in self._held.items() if held.due <= time.monotonic()]
            lost = [self._held.pop(message_id) for message_id in due]
        for each in lost:
            each.lost()
