"""What a worker process counts: runs, steps, leases, heartbeats, commits, slots, the event loop's lag."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from pgqrs.db.runs.records import RunWrite
from pgqrs.telemetry.metric_types import Buckets, Counter, Family, Gauge, Histogram, LabelNames, text_of
from pgqrs.types import RunStatus, StepStatus

if TYPE_CHECKING:
    from pgqrs.engine.runs.slots import Slots

# Seconds. A run may wait for a person, a step for another machine; a wait in the queue is a matter of milliseconds.
_WAITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_RUNS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 604800)
_STEPS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class _OfWorkflow:
    """What is looked up once per workflow, and not once per step."""

    __slots__ = ("failed", "label", "succeeded")

    def __init__(self, label: str, succeeded: Buckets, failed: Buckets) -> None:
        self.label = label
        self.succeeded = succeeded
        self.failed = failed


class WorkerMetrics:
    """A `Meter`. One lock, taken once per batch, pass and end: several loops and threads may tell it things."""

    def __init__(self) -> None:
        self.runs_finished: Counter = Counter(
            "pgqrs_runs_finished_total", "Runs that ended in this process.", ["workflow", "status"]
        )
        self.run_wait: Histogram = Histogram(
            "pgqrs_run_wait_seconds",
            "From when a run was due until it was leased, each time that it was taken up.",
            _WAITS,
            ["workflow"],
        )
        self.run_duration: Histogram = Histogram(
            "pgqrs_run_duration_seconds",
            "From when a run first began until it ended, waits and retries included.",
            _RUNS,
            ["workflow"],
        )
        self.step_duration: Histogram = Histogram(
            "pgqrs_step_duration_seconds",
            "How long the bodies of steps took; replayed steps are not executed, and not counted.",
            _STEPS,
            ["workflow", "status"],
        )
        self.step_retries: Counter = Counter(
            "pgqrs_step_retries_total", "Failed attempts of steps that are tried again.", ["workflow"]
        )
        self.leases_lost: Counter = Counter(
            "pgqrs_lease_lost_total",
            "Runs that were taken away while they were held here: a lease ran out, or somebody cancelled, paused or "
            "deleted the run.",
        )
        self.heartbeat_failures: Counter = Counter(
            "pgqrs_heartbeat_failures_total", "Heartbeats that did not reach the database."
        )
        self.commit_batch_size: Histogram = Histogram(
            "pgqrs_commit_batch_size", "Checkpoints and outcomes in one transaction.", _BATCHES
        )
        self.worker_slots: Gauge = Gauge(
            "pgqrs_worker_slots",
            "Runs at work (busy), room for more (free), and runs leased ahead that wait for room (ahead).",
            ["state"],
            read=self._read_slots,
        )
        self.loop_lag: Histogram = Histogram(
            "pgqrs_event_loop_lag_seconds",
            "How long the event loop took to answer its heartbeat, which asks up to four times a second while runs "
            "are held.",
            _LAGS,
        )
        self._names = LabelNames()
        self._by_workflow: dict[str, _OfWorkflow] = {}
        self._slots: WeakSet[Slots] = WeakSet()
        self._lock = threading.Lock()

    def families(self) -> list[Family]:
        return [each for each in vars(self).values() if isinstance(each, Counter | Histogram | Gauge)]

    def text(self) -> str:
        """As Prometheus reads it."""
        return text_of(self.families())

    # -- what the engine tells ---------------------------------------------------------------------------

    def serving(self, slots: Slots) -> None:
        with self._lock:
            self._slots.add(slots)

    def left(self, slots: Slots) -> None:
        with self._lock:
            self._slots.discard(slots)

    def began(self, workflow: str, waited: float | None) -> None:
        with self._lock:
            label = self._of(workflow).label
            if waited is not None:
                self.run_wait.of(label).observe(max(waited, 0.0))

    def finished(self, workflow: str, status: RunStatus, seconds: float | None) -> None:
        with self._lock:
            label = self._of(workflow).label
            self.runs_finished.add((label, str(status)))
            if seconds is not None:
                self.run_duration.of(label).observe(max(seconds, 0.0))

    def committed(self, writes: Sequence[RunWrite]) -> None:
        with self._lock:
            self.commit_batch_size.of().observe(len(writes))
            for write in writes:
                if write.steps and write.workflow is not None:
                    self._count_steps(write, self._of(write.workflow))

    def _count_steps(self, write: RunWrite, workflow: _OfWorkflow) -> None:
        for step in write.steps:
            if step.status is StepStatus.PENDING:
                self.step_retries.add((workflow.label,))
            # One that is put back has been counted when it failed. What has no body, such as a sleep, took no time.
            if step.seconds > 0 and not step.is_again:
                buckets = workflow.succeeded if step.status is StepStatus.SUCCESS else workflow.failed
                buckets.observe(step.seconds)

    def stepped(self, workflow: str, status: StepStatus, seconds: float) -> None:
        with self._lock:
            found = self._of(workflow)
            (found.succeeded if status is StepStatus.SUCCESS else found.failed).observe(seconds)

    def lease_lost(self) -> None:
        with self._lock:
            self.leases_lost.add()

    def heartbeat_failed(self) -> None:
        with self._lock:
            self.heartbeat_failures.add()

    def loop_lagged(self, seconds: float) -> None:
        with self._lock:
            self.loop_lag.of().observe(seconds)

    def _of(self, workflow: str) -> _OfWorkflow:
        found = self._by_workflow.get(workflow)
        if found is not None:
            return found
        label = self._names.label(workflow)
        found = _OfWorkflow(
            label,
            self.step_duration.of(label, str(StepStatus.SUCCESS)),
            self.step_duration.of(label, str(StepStatus.ERROR)),
        )
        # From 0 on: a first failure that comes out of nowhere is no increase for Prometheus.
        for status in (RunStatus.SUCCESS, RunStatus.ERROR):
            self.runs_finished.add((label, str(status)), 0)
        self.step_retries.add((label,), 0)
        if label == workflow:
            # Those beyond the bound are not remembered either.
            self._by_workflow[workflow] = found
        return found

    def _read_slots(self) -> Iterator[tuple[tuple[str, ...], float]]:
        with self._lock:
            workers = list(self._slots)
        busy = sum(len(slots.running) for slots in workers)
        yield ("busy",), busy
        yield ("free",), max(0, sum(slots.size for slots in workers) - busy)
        yield ("ahead",), sum(len(slots.ready) for slots in workers)
