"""A run's steps on a line of time: a row for each, its attempts as segments, long idle stretches folded.

What is on record of a step is when it first began, when it ended, and when each attempt failed. So the first attempt
is a bar with both ends; of a later one only its end is known: it is drawn as a wait, and a mark at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from pgqrs.db.tables.runs import RunRow
from pgqrs.db.views.run_details import FailedAttempt, TimedStep
from pgqrs.text.step_ids import is_wait
from pgqrs.types import ENDED, StepStatus
from pgqrs.web.pages.rendering import took

# A stretch in which nothing happened is folded when it is longer than this part of what is not folded.
_FOLDED_FROM = 0.25
_MOST_FOLDS = 12
_LEAST_FOLD = timedelta(seconds=1)
# How wide a folded stretch is drawn, in percent; all of them together take at most half.
_FOLD_WIDTH = 4.0
_LEAST_WIDTH = 0.5
# So that two labels have room beside each other, also on a phone.
_TICK_DISTANCE = 24.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a row: `ok`, `failed`, `wait` or `open`; numbers are percent of the width."""

    kind: str
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class TimelineRow:
    step: TimedStep
    segments: tuple[Segment, ...]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Fold:
    x: float
    width: float
    label: str


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    label: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Timeline:
    lines: tuple[TimelineRow, ...]
    # The run itself: waiting for a worker, then at work.
    run: tuple[Segment, ...]
    ticks: tuple[Tick, ...]
    folds: tuple[Fold, ...]
    # Where now is, for a run that has not ended.
    now: float | None


def drawn(run: RunRow, steps: Sequence[TimedStep], failures: Sequence[FailedAttempt], now: datetime) -> Timeline:
    ended = run.status in ENDED
    end = run.completed_at if ended and run.completed_at else now
    rows = [(step, _attempts(step, failures)) for step in steps]
    moments = [(run.created_at, run.created_at), (end, end)]
    if run.started_at is not None:
        moments.append((run.started_at, run.started_at))
    for step, failed in rows:
        moments += _busy(step, failed)
    axis = _Axis(moments)
    return Timeline(
        lines=tuple(
            TimelineRow(step, tuple(_segments(step, failed, axis, end)), _seconds(step)) for step, failed in rows
        ),
        run=tuple(_run_segments(run, axis, end)),
        ticks=axis.ticks(),
        folds=axis.folds,
        now=None if ended else axis.x(now),
    )


def _attempts(step: TimedStep, failures: Sequence[FailedAttempt]) -> list[FailedAttempt]:
    """Of this record of the step: what failed before a reset has left no trace on it."""
    begun = step.started_at
    return [each for each in failures if each.step_id == step.step_id and (begun is None or each.at >= begun)]


def _busy(step: TimedStep, failed: Sequence[FailedAttempt]) -> list[tuple[datetime, datetime]]:
    """When it was at work, as far as that is known."""
    points = [each.at for each in failed] + ([step.completed_at] if step.completed_at else [])
    if step.started_at is None or not points or is_wait(step.step_id):
        return [(point, point) for point in (*points, *([step.started_at] if step.started_at else []))]
    return [(step.started_at, max(step.started_at, points[0])), *((point, point) for point in points[1:])]


def _segments(step: TimedStep, failed: Sequence[FailedAttempt], axis: _Axis, end: datetime) -> list[Segment]:
    begun = step.started_at or step.completed_at
    if begun is None:
        return []
    waits = is_wait(step.step_id)
    ends = [(each.at, "failed", f"attempt {each.attempt}: {each.kind}: {each.message}"[:300]) for each in failed]
    # The last failure is on record twice: as an event, and as the end of the step.
    if step.completed_at is not None and not (ends and step.status is StepStatus.ERROR):
        kind = "failed" if step.status is StepStatus.ERROR else "wait" if waits else "ok"
        ends.append((step.completed_at, kind, f"{step.status.lower()} after {took(_seconds(step))}"))
    found = []
    at = begun
    for number, (until, kind, title) in enumerate(ends):
        if number and until > at:
            found.append(axis.segment("retry", at, until, "waiting, and the next attempt"))
            found.append(axis.segment(kind, until, until, title))
        else:
            found.append(axis.segment(kind, at, max(at, until), title))
        at = max(at, until)
    if step.completed_at is None:
        kind = "wait" if waits or step.status is StepStatus.PAUSED else "open"
        found.append(axis.segment(kind, at, max(at, end), "waits" if kind == "wait" else "under way"))
    return found


def _run_segments(run: RunRow, axis: _Axis, end: datetime) -> list[Segment]:
    begun = run.started_at or end
    found = [axis.segment("queued", run.created_at, begun, f"waited {took(_between(run.created_at, begun))}")]
    if run.started_at is not None:
        found.append(
            axis.segment("whole", run.started_at, end, f"{took(_between(run.started_at, end))} since it began")
        )
    return found


def _seconds(step: TimedStep) -> float | None:
    if step.started_at is None or step.completed_at is None:
        return None
    return _between(step.started_at, step.completed_at)


def _between(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())


class _Axis:
    """Time as percent of the width, with idle stretches folded."""

    def __init__(self, busy: Sequence[tuple[datetime, datetime]]) -> None:
        merged = _merged(busy)
        self._start, self._end = merged[0][0], merged[-1][1]
        folded = _folded(merged)
        width = min(_FOLD_WIDTH, 50.0 / len(folded)) if folded else 0.0
        total = self._end - self._start
        unfolded = (total - sum((end - start for start, end in folded), timedelta())).total_seconds()
        scale = (100.0 - width * len(folded)) / unfolded if unfolded > 0 else 0.0
        # From, until, and the percent at which both stand.
        self._pieces: list[tuple[datetime, datetime, float, float]] = []
        at, x = self._start, 0.0
        for start, end in folded:
            begun = x + (start - at).total_seconds() * scale
            self._pieces += [(at, start, x, begun), (start, end, begun, begun + width)]
            at, x = end, begun + width
        self._pieces.append((at, self._end, x, 100.0))
        self.folds = tuple(Fold(self.x(start), width, took((end - start).total_seconds())) for start, end in folded)

    def x(self, moment: datetime) -> float:
        for start, end, left, right in self._pieces:
            if moment <= end:
                length = (end - start).total_seconds()
                part = max(0.0, (moment - start).total_seconds()) / length if length > 0 else 0.0
                return left + (right - left) * part
        return 100.0

    def segment(self, kind: str, start: datetime, end: datetime, title: str) -> Segment:
        left = self.x(start)
        width = max(self.x(end) - left, _LEAST_WIDTH)
        # What ends at the edge is drawn before it.
        return Segment(kind, min(left, 100.0 - width), width, title)

    def ticks(self) -> tuple[Tick, ...]:
        """How long after the beginning, where there is room for it: at the ends of what is not folded first."""
        wanted: list[tuple[float, datetime]] = [(0.0, self._start), (100.0, self._end)]
        for start, end, left, right in self._pieces[::2]:
            steps = max(1, round((right - left) / 25))
            wanted += [
                (left + (right - left) * part / steps, start + (end - start) * part / steps)
                for part in range(steps + 1)
            ]
        taken: list[tuple[float, datetime]] = []
        for x, moment in wanted:
            if all(abs(x - other) >= _TICK_DISTANCE for other, _ in taken):
                taken.append((x, moment))
        return tuple(
            Tick(x, "0" if x == 0 else f"+{took((moment - self._start).total_seconds())}", _anchor(x))
            for x, moment in sorted(taken)
        )


def _anchor(x: float) -> str:
    return "start" if x < 5 else "end" if x > 95 else "middle"


def _merged(busy: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    found: list[tuple[datetime, datetime]] = []
    for start, end in sorted(busy):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _folded(busy: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """The idle stretches that would leave no room for what happened, the longest first; in the order of time."""
    gaps = [(before[1], after[0]) for before, after in pairwise(busy)]
    left = busy[-1][1] - busy[0][0]
    found: list[tuple[datetime, datetime]] = []
    for gap in sorted(gaps, key=lambda each: each[0] - each[1]):
        length = gap[1] - gap[0]
        if len(found) == _MOST_FOLDS or length < _LEAST_FOLD or length < left * _FOLDED_FROM:
            break
        found.append(gap)
        left -= length
    return sorted(found)
