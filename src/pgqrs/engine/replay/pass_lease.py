"""May this pass continue? The one owner of the answer: what a handler asks for, and every write, asks here first."""

from __future__ import annotations

from collections.abc import Callable

from pgqrs.engine.heartbeat import HeldLease
from pgqrs.engine.replay.unwinding import Halt
from pgqrs.errors import LeaseLost, PgqrsError


class PassLease:
    """The lease under which one pass works, and the reason why the pass is over when its handler was not asked."""

    __slots__ = ("_on_halt", "_run_id", "halted", "handing_back", "held")

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

    def watch(self, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called from the heartbeat's thread when the lease is gone."""
        self.held.lost = on_lost

    def close(self) -> None:
        """From now on its loss concerns no one."""
        self.held.lost = None
        self._on_halt = _nothing

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"run {self._run_id} was leased again or cancelled; nothing more is done here")


def _nothing() -> None:
    """The pass has ended already."""
