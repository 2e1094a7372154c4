"""May this pass continue? The one owner of the answer: what a handler asks for, and every write, asks here first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pgqrs.engine.heartbeat import HeldLease
from pgqrs.engine.replay.unwinding import Halt
from pgqrs.errors import LeaseLost, PgqrsError


class PassLease:
    """The lease under which one pass works, and the reason why the pass is over when its handler was not asked."""

    __slots__ = ("_on_halt", "_run_id", "_unlocked", "halted", "handing_back", "held")

    def __init__(self, run_id: int, held: HeldLease, on_halt: Callable[[], None]) -> None:
        self._run_id = run_id
        # Asked before every step and every write: has the heartbeat renewed the lease in time?
        self.held: HeldLease = held
        # Called once, when the pass is halted from within.
        self._on_halt = on_halt
        # Why the pass is over, when the handler was not asked.
        self.halted: PgqrsError | None = None
        # True when the worker gives its runs back: then a cancellation is the worker's.
        self.handing_back: bool = False
        # Set when the last lock of the run is gone.
        self._unlocked: asyncio.Future[None] | None = None

    def halt(self, error: PgqrsError) -> Halt:
        """The pass is over; the first reason stays. Raise what this gives."""
        if self.halted is None:
            self.halted = error
            self._on_halt()
        return Halt(self.halted)

    def lose(self) -> Halt:
        """A write found that the lease is not ours any more."""
        return self.halt(self._lost())

    def halt_from_outside(self, error: PgqrsError) -> Halt:
        """As `halt`, and the caller tells the handler."""
        self.halted = self.halted or error
        return Halt(self.halted)

    def abandon(self) -> Halt:
        """As `lose`, found from outside: the caller tells the handler."""
        return self.halt_from_outside(self._lost())

    def hand_back(self) -> None:
        """From now on a cancellation means that the worker hands the run back."""
        self.handing_back = True

    def refused(self) -> Halt:
        """For a handler that asks for something new although its run is handed back; the pass is not halted by it."""
        return Halt(self._lost())

    def check_alive(self) -> None:
        """Raise Halt when nothing may be written any more."""
        if self.halted is not None:
            raise Halt(self.halted)
        if not self.held.is_valid():
            raise self.lose()

    def may_insist(self) -> bool:
        """True while what could not be written may be written again."""
        return self.halted is None and not self.handing_back and self.held.is_valid()

    def is_halted(self) -> bool:
        """True when the pass is over, and the handler was not asked."""
        return self.halted is not None

    @property
    def is_lost(self) -> bool:
        return isinstance(self.halted, LeaseLost)

    def lock(self) -> None:
        """A transaction of the pass has locked its run."""
        self.held.locks += 1

    def unlock(self) -> None:
        """As often as `lock`."""
        self.held.locks -= 1
        if not self.held.locks and self._unlocked is not None:
            self._unlocked.set_result(None)
            self._unlocked = None

    async def unlocked(self) -> None:
        """Wait until no transaction of the pass has locked the run."""
        while self.held.locks:
            if self._unlocked is None:
                self._unlocked = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._unlocked)

    def watch(self, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called from the heartbeat's thread when the lease is gone."""
        self.held.lost = on_lost

    def close(self) -> None:
        """From now on its loss concerns no one."""
        self.held.lost = None
        self._on_halt = _nothing

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"run {self._run_id} was leased again or cancelled; nothing more is done here")


class RunLock:
    """The lock that a transaction has on its run in the database, from `take` to `release`.

    It keeps the run from other workers as a lease does. Meanwhile no heartbeat can extend the lease, which may run
    out; so the transaction itself extends it before it commits.
    """

    __slots__ = ("_extended_at", "_lease", "_lease_seconds", "_taken_at")

    def __init__(self, lease: PassLease, lease_seconds: float) -> None:
        self._lease = lease
        self._lease_seconds = lease_seconds
        self._taken_at: float | None = None
        self._extended_at: float | None = None

    def take(self) -> None:
        if self._taken_at is None:
            # Else the connection broke at the commit, and this is the next try.
            self._lease.lock()
        self._taken_at, self._extended_at = time.monotonic(), None

    def extension(self) -> float | None:
        """The seconds by which to extend the lease now; None where it has not missed a heartbeat."""
        now = time.monotonic()
        if self._taken_at is None or now - self._taken_at < self._lease_seconds / 3:
            return None
        self._extended_at = now
        return self._lease_seconds

    def committed(self) -> None:
        """With the transaction, the lease was extended."""
        if self._extended_at is not None:
            self._lease.held.renew(self._extended_at)

    def release(self) -> None:
        """Idempotent."""
        if self._taken_at is not None:
            self._taken_at = None
            self._lease.unlock()


def _nothing() -> None:
    """The pass has ended already."""
