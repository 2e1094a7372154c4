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
from pgqrs.db.hints import WORKERS
from pgqrs.db.tables import messages, workers
from pgqrs.engine.instrumentation import hooks
from pgqrs.engine.loop_watchdog import LAG_SECONDS, LoopWatchdog
from pgqrs.types import WorkerStatus

log: logging.Logger = logging.getLogger("pgqrs.worker")

_BEATS_APART_SECONDS = 1.0
# With short leases it is tried often: an outage is not told each time.
_COMPLAINTS_APART_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class HeldLease:
    """A lease that is being kept. Its holder asks `is_valid` without a lock, as often as it likes."""

    message_id: int
    token: int
    run_id: int
    lease_seconds: float
    # On this process's clock: when it came; and when it must be given up, which is a tenth of a lease before the
    # database would give it to somebody else.
    since: float
    due: float
    # Called once, from the thread, when the lease is gone.
    lost: Callable[[], None] | None = None
    is_lost: bool = False
    # True when its outcome is on the way to the database: whether the lease still held, that commit will say.
    settling: bool = False

    def renew(self, at: float) -> None:
        self.due = at + self.lease_seconds * 0.9

    def is_valid(self) -> bool:
        """False when the lease is lost, or would have to be given up: this process may have been frozen."""
        return not self.is_lost and self.due > time.monotonic()

    def lose(self) -> None:
        self.is_lost = True
        if self.lost is not None:
            self.lost()


class Heartbeat:
    """All leases renewed in one statement, every third of the shortest.

    A step that blocks the event loop does not block this thread. If the database cannot be reached until shortly
    before a lease would run out, its holder is told that it is lost: the worker stops before the database hands over.
    """

    def __init__(
        self,
        db: Driver,
        config: Config,
        *,
        worker_id: int,
        lease_seconds: float,
        told_to_stop: Callable[[], object] | None = None,
    ) -> None:
        """`told_to_stop` is called, from the thread, when somebody has declared the worker stopped."""
        self._db = db
        self._told_to_stop = told_to_stop
        self._config = config
        self._worker_id = worker_id
        self._lease_seconds = lease_seconds
        self._held: dict[int, HeldLease] = {}
        self._by_run: dict[int, HeldLease] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        # True while the thread waits for longer, because nothing is held.
        self._resting = False
        # Set when the thread shall look at once: a shorter lease has come, somebody asks, or it is to end.
        self._sooner = threading.Event()
        self._asked = threading.Event()
        self._beaten = time.monotonic()
        self._complained = -math.inf
        # Since when it has failed each time; None while it does not.
        self._failing_since: float | None = None
        self._meter = hooks.meter
        self._watch = LoopWatchdog(self._meter)
        self._watching: asyncio.TimerHandle | None = None

    def hold(
        self,
        message_id: int,
        token: int,
        lost: Callable[[], None] | None = None,
        *,
        run_id: int,
        lease_seconds: float,
        since: float | None = None,
    ) -> HeldLease:
        """From now on the lease is renewed, until `let_go`.

        `since` is when it was asked for: the database counts from a moment after that, but not from when its answer
        was read, and a process may stand still between the two.
        """
        since = time.monotonic() if since is None else since
        held = HeldLease(message_id, token, run_id, lease_seconds, since, since + lease_seconds * 0.9, lost)
        with self._lock:
            # A run that was reset is leased again at once, often by the worker that has not heard of it yet.
            before = self._held.get(message_id)
            self._held[message_id] = held
            self._by_run[run_id] = held
            rested, self._resting = self._resting, False
        if rested or lease_seconds < self._lease_seconds:
            # The thread may be in the middle of a wait that is too long for this one.
            self._sooner.set()
        self.start()
        if before is not None and not before.settling:
            before.lose()
        return held

    def start(self) -> None:
        """The thread, which also shows that the worker is there. Idempotent; called on the loop."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pgqrs-heartbeat", daemon=True)
            self._thread.start()

    def let_go(self, held: HeldLease) -> None:
        with self._lock:
            self._forget(held)

    def _forget(self, held: HeldLease) -> None:
        """That very lease: the same message may be held anew under another token."""
        if self._held.get(held.message_id) is held:
            del self._held[held.message_id]
        if self._by_run.get(held.run_id) is held:
            del self._by_run[held.run_id]

    def heard(self, topics: frozenset[int] | None) -> None:
        """A hint: if it is about a run that is held here, or about workers, somebody may want it to end: ask now."""
        with self._lock:
            if topics is None:
                # Something was written somewhere: worth a look, but not for each of many.
                concerned = bool(self._held) and time.monotonic() - self._beaten > _BEATS_APART_SECONDS
            else:
                held = [self._by_run[-topic] for topic in topics if -topic in self._by_run]
                concerned = WORKERS in topics or not all(each.settling for each in held)
        if concerned:
            self._asked.set()
            self._sooner.set()

    def stop(self) -> None:
        """Without waiting for it."""
        self._stop.set()
        self._sooner.set()

    def close(self) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._beat_forever())

    async def _beat_forever(self) -> None:
        """On PostgreSQL with a connection of its own; SQLite's writer serves any thread."""
        own: Driver | None = None
        # Now, and not at the first beat: a worker that drains begins with a run in its hands.
        self._watch_the_loop()
        try:
            while not await asyncio.to_thread(self._wait):
                if self._may_rest():
                    continue
                if self._watching is None:
                    self._watch_the_loop()
                # Beside the beat: a connection that hangs takes its time even to be given up.
                fencing = asyncio.get_running_loop().call_later(self._until_due(), self._give_up_what_is_due)
                try:
                    async with asyncio.timeout(self._patience()):
                        if own is None:
                            own = await self._connect()
                        await self._beat(own)
                    self._failing_since = None
                except Exception as error:  # noqa: BLE001 - a thread that has ended would keep no lease ever again
                    self._complain(error)
                fencing.cancel()
                self._give_up_what_is_due()
        finally:
            if own is not None and own is not self._db:
                await own.close()

    @property
    def seconds_failing(self) -> float:
        """0 when the last one went well, or there was none yet."""
        since = self._failing_since
        return 0.0 if since is None else time.monotonic() - since

    def _complain(self, error: Exception) -> None:
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        if self._meter is not None:
            self._meter.heartbeat_failed()
        if time.monotonic() - self._complained >= _COMPLAINTS_APART_SECONDS:
            self._complained = time.monotonic()
            log.warning("heartbeat failed: %s", str(error) or type(error).__name__)

    def _watch_the_loop(self) -> None:
        """Again and again while something is held."""
        self._watching = None
        if self._held:
            self._watch.look()
            self._watching = asyncio.get_running_loop().call_later(LAG_SECONDS, self._watch_the_loop)

    def _patience(self) -> float:
        """A third of a lease, but no longer than until the first lease must be given up."""
        with self._lock:
            shortest = min((held.lease_seconds for held in self._held.values()), default=math.inf)
        return min(self._lease_seconds / 3, shortest / 3, self._until_due())

    def _until_due(self) -> float:
        """Seconds until the first lease must be given up."""
        with self._lock:
            due = min((held.due for held in self._held.values()), default=time.monotonic() + self._lease_seconds)
        return max(due - time.monotonic(), 0) + 0.01

    def _until_next(self) -> float:
        """A third of the shortest lease; a whole one while nothing is held, as it need only be seen to be there.

        On SQLite each sign of life is a commit, at which every waiting worker of the file looks for work.
        """
        with self._lock:
            self._resting = not self._held and self._failing_since is None
        return self._lease_seconds if self._resting else self._patience()

    def _wait(self) -> bool:
        """Until the next heartbeat is due; True when it is time to end."""
        patience = self._until_next()
        while self._sooner.wait(patience):
            self._sooner.clear()
            if self._stop.is_set():
                return True
            if self._asked.is_set():
                self._asked.clear()
                self._beaten = -math.inf
                return False
            patience = self._until_next()
        return self._stop.is_set()

    def _may_rest(self) -> bool:
        """With nothing to keep, one sign of life in a lease is enough: on SQLite each wakes everybody who waits."""
        return not self._held and time.monotonic() - self._beaten < self._lease_seconds * 0.9

    async def _connect(self) -> Driver:
        if not self._db.dialect.is_postgres:
            return self._db
        return await open_driver(self._config.with_changes(pool_size=1, listen_dsn=""), self._db.clock)

    async def _beat(self, db: Driver) -> None:
        # After the process stood still: the database would renew a lease that no other worker has taken yet, but its
        # holder may have stopped already.
        self._give_up_what_is_due()
        with self._lock:
            asked = list(self._held.values())
        started = self._beaten = time.monotonic()
        if not await workers.heartbeat(db, self._worker_id):
            await self._look_why(db)
        given = [(held.message_id, held.token, held.lease_seconds) for held in asked]
        renewed, locked = await messages.renew(db, given) if given else (set(), set())
        lost = []
        with self._lock:
            for held in asked:
                if self._held.get(held.message_id) is not held:
                    continue
                if held.message_id in renewed:
                    held.renew(started)
                elif held.message_id not in locked and not held.settling:
                    self._forget(held)
                    lost.append(held)
        for held in lost:
            held.lose()

    async def _look_why(self, db: Driver) -> None:
        """Told to stop; or retention took the row of a worker that was silent for long, which may go on."""
        if self._told_to_stop is not None and await workers.status(db, self._worker_id) is WorkerStatus.STOPPED:
            told, self._told_to_stop = self._told_to_stop, None
            log.info("worker %d was told to stop", self._worker_id)
            told()

    def _give_up_what_is_due(self) -> None:
        """Self-fencing."""
        with self._lock:
            lost = [held for held in self._held.values() if held.due <= time.monotonic()]
            for held in lost:
                self._forget(held)
        for held in lost:
            held.lose()
