"""Who watches the engine at work: nobody, unless `pgqrs.telemetry.instrument` says otherwise.

The engine knows these two protocols and no library for metrics or traces. A worker looks here once, when it is made;
where nobody watches it tests one attribute per batch, per pass and per step. What is told is names, numbers and
errors: never an input, an output or a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pgqrs.db.runs.records import Ended, RunWrite, Suspended
from pgqrs.engine.replay.branches import BranchPlace
from pgqrs.types import RunStatus, StepStatus

if TYPE_CHECKING:
    from pgqrs.db.runs.claims import Claim
    from pgqrs.engine.runs.slots import Slots


class Meter(Protocol):
    """Counts. Called on event loops and in the threads of heartbeats; must neither block nor raise."""

    def serving(self, slots: Slots) -> None:
        """A worker is there, with these slots."""

    def left(self, slots: Slots) -> None:
        """It is there no more."""

    def began(self, workflow: str, waited: float | None) -> None:
        """A pass begins, so many seconds after its run was due; None where that is not known."""

    def finished(self, workflow: str, status: RunStatus, seconds: float | None) -> None:
        """A run has ended, durably, so many seconds after it first began."""

    def committed(self, writes: Sequence[RunWrite]) -> None:
        """A transaction with these checkpoints and outcomes is durable."""

    def stepped(self, workflow: str, status: StepStatus, seconds: float) -> None:
        """A step was executed that has a transaction of its own."""

    def lease_lost(self) -> None:
        """A run is somebody else's, or was cancelled, paused or deleted, while it was held here."""

    def heartbeat_failed(self) -> None: ...

    def loop_lagged(self, seconds: float) -> None:
        """So long it took the event loop to answer."""


class Origin:
    """Where runs come from."""

    # What they shall remember of it, as JSON.
    headers: str | None = None

    def made(self, run_ids: Sequence[int]) -> None:
        """They are durable, or will be when the caller's transaction commits."""


class PassTrace(Protocol):
    """The trace of one pass."""

    def ended(self, end: Ended | Suspended, error: BaseException | None) -> None: ...


class Tracer(Protocol):
    """Draws spans around what is done, in the context of whoever does it."""

    def trigger(self, workflow: str, count: int) -> AbstractContextManager[Origin]: ...

    def execute(self, workflow: str, claim: Claim) -> AbstractContextManager[PassTrace]: ...

    def step(self, workflow: str, run_id: int, place: BranchPlace, attempt: int) -> AbstractContextManager[object]:
        """Around a step that is executed; not around one that is replayed."""

    def step_failed(self, error: Exception) -> None:
        """The step around which we are has failed, and is tried again later."""


@dataclass(slots=True)
class Hooks:
    """Of this process."""

    meter: Meter | None = None
    tracer: Tracer | None = None


hooks: Hooks = Hooks()
_NOWHERE = Origin()


def triggered(workflow: str, count: int) -> AbstractContextManager[Origin]:
    """To be put around making runs."""
    tracer = hooks.tracer
    return nullcontext(_NOWHERE) if tracer is None else tracer.trigger(workflow, count)
