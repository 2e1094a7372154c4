"""A run in a test: what is on record of it, read again after each verb of its kit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pgqrs.api.operations.why import is_parked
from pgqrs.db.tables.runs import RunRow
from pgqrs.errors import ExecutionFailed, RunCancelled
from pgqrs.inputs import given
from pgqrs.serialization import decode
from pgqrs.types import ENDED, Event, RunStatus, Step, StepStatus

_MOST_SHOWN = 200
_OPENING = frozenset({"created", "leased", "started", "resumed", "signalled", "restarted", "restored", "lease_lost"})


class RunHandle:
    """Nothing here is awaited: a kit's verbs (`drain`, `signal` ...) bring it up to date."""

    run_id: int
    workflow: str
    # All of them, in the order in which they were recorded; `step_ids` names the completed ones.
    steps: list[Step]
    events: list[Event]
    # How often a worker was killed while it was under way; only `crash_everywhere` kills.
    crashes: int

    def __init__(self, run_id: int, workflow: str, *, returns: Any = Any) -> None:
        self.run_id = run_id
        self.workflow = workflow
        self.crashes = 0
        self.steps = []
        self.events = []
        self._returns = returns
        self._row: RunRow | None = None

    def update(self, row: RunRow, steps: Sequence[Step], events: Sequence[Event]) -> None:
        self._row = row
        self.steps = list(steps)
        self.events = list(events)

    @property
    def row(self) -> RunRow:
        assert self._row is not None, "a handle is read as soon as it is made"  # noqa: S101 - for readers
        return self._row

    @property
    def status(self) -> RunStatus:
        return self.row.status

    @property
    def waiting_for(self) -> str | None:
        """What a waiting run waits for: a signal's name, a pause's message, a time."""
        return self.row.waiting_for

    @property
    def attempt(self) -> int:
        return self.row.attempt

    @property
    def input(self) -> Any:
        return given(self.row.input)

    @property
    def error(self) -> str | None:
        """The last error in one line, `ValueError: no such sku`; None when nothing went wrong."""
        return self.row.last_error

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_parked(self) -> bool:
        """Return whether it was put aside because its code asked for other steps than are recorded."""
        return is_parked(self.row)

    @property
    def step_ids(self) -> list[str]:
        """The completed steps, in the order in which they were recorded."""
        return [step.step_id for step in self.steps if step.status is StepStatus.SUCCESS]

    def result(self) -> Any:
        """What the workflow returned; ExecutionFailed or RunCancelled if it did not, AssertionError if it goes on."""
        __tracebackhide__ = True
        match self.status:
            case RunStatus.SUCCESS:
                return decode(self.row.output or "null", self._returns)
            case RunStatus.ERROR:
                raise ExecutionFailed(self.run_id, self.row.last_error)
            case RunStatus.CANCELLED:
                raise RunCancelled(self.run_id, self.row.last_error)
            case _:
                raise AssertionError(f"run {self.run_id} of {self.workflow!r} has not ended\n{self.timeline()}")

    def timeline(self) -> str:
        """What happened to it and when, one line each, for failures that read well."""
        row = self.row
        state = f"{row.status}, waiting for {row.waiting_for}" if row.waiting_for else str(row.status)
        head = f"run {self.run_id} of {self.workflow!r}: {state}, attempt {row.attempt} of {row.max_attempts}"
        if row.last_error:
            head += f", last error {row.last_error}"
        # On a hand-set clock much happens at the same time: what begins something stands first, what ends it last.
        lines = [
            (each.created_at, 0 if each.event_type in _OPENING else 2, _event_line(each)) for each in self.events
        ]
        lines += [
            (step.completed_at or step.started_at or row.created_at, 1, _step_line(step)) for step in self.steps
        ]
        lines.sort(key=lambda line: line[:2])
        return "\n".join([head, *(f"  {_since(row.created_at, at):>10}  {text}" for at, _, text in lines)])

    def __repr__(self) -> str:
        return f"<run {self.run_id} of {self.workflow} {self.status}>"


def shown(value: Any) -> str:
    """A value in one line, cut where it grows long."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _event_line(event: Event) -> str:
    data = event.data if isinstance(event.data, dict) else {}
    details = ", ".join(f"{name} {shown(value)}" for name, value in data.items() if name != "traceback")
    return f"{event.event_type}{': ' + details if details else ''}"


def _step_line(step: Step) -> str:
    tries = f" (attempt {step.attempts})" if step.attempts > 1 else ""
    if step.status is StepStatus.SUCCESS:
        return f"step {step.step_id} -> {shown(step.output)}{tries}"
    error = step.error if isinstance(step.error, dict) else {}
    why = f": {error['type']}: {error.get('message', '')}" if "type" in error else ""
    return f"step {step.step_id} {step.status}{why}{tries}"


def _since(start: datetime, at: datetime) -> str:
    return f"+{(at - start).total_seconds():g} s"
