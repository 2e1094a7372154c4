"""What the model of runs is made of, and what an execution reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pgqrs.types import RunStatus, StepStatus
from proof.model.queues import Name

SIGNALS = ("go", "stop")
STEPS = ("one", "two", "three")
# As `ctx.wait_for` names them.
WAITS = {name: [f"wait_for:{name}{again}" for again in ("", "#2", "#3", "#4")] for name in SIGNALS}
# Where each step stands in its handler.
PLACES = {step: place for place, step in enumerate([*STEPS, "spawn", *WAITS["go"], *WAITS["stop"]])}


@dataclass(slots=True)
class Run:
    workflow: str
    input: Any
    created_at: datetime
    updated_at: datetime
    max_attempts: int
    priority: int = 0
    key: str | None = None
    parent: Name | None = None
    dead_letter_of: Name | None = None
    status: RunStatus = RunStatus.PENDING
    output: Any = None
    error: Any = None
    last_error: str | None = None
    signature: str | None = None
    attempt: int = 0
    worker: str | None = None
    waiting_for: str | None = None
    progress: Any = None
    started_at: datetime | None = None
    paused_at: datetime | None = None
    completed_at: datetime | None = None
    deleted_at: datetime | None = None
    delete_reason: str | None = None


@dataclass(slots=True)
class Step:
    ordinal: int
    status: StepStatus
    output: Any
    error: Any
    attempts: int
    started_at: datetime
    completed_at: datetime | None

    @property
    def place(self) -> tuple[datetime, int]:
        return self.completed_at or self.started_at, self.ordinal


@dataclass(slots=True)
class Signal:
    run: Name
    name: str
    payload: Any
    created_at: datetime
    consumed_at: datetime | None = None


class StepDone(NamedTuple):
    """A step as an execution reports it."""

    step: str
    status: StepStatus
    output: Any = None
    error: Any = None
    attempts: int = 1


class End(NamedTuple):
    """How a pass over a run ended; SUCCESS and ERROR are for good."""

    status: RunStatus
    output: Any = None
    error: Any = None
    last_error: str | None = None
    delay: float = 0
    count_attempt: bool = False
    waiting_for: str | None = None
    signals: tuple[str, ...] = ()
    children: bool = False


class Report(NamedTuple):
    """What one execution wants recorded under its lease."""

    lease: Name
    steps: tuple[StepDone, ...] = ()
    end: End | None = None
