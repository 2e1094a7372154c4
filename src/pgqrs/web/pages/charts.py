"""Pictures as numbers: where bars and lines stand. Templates draw them; heights and widths are parts of 100."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pgqrs.db.pulse import Pulse
from pgqrs.web.pages.rendering import number, took


@dataclass(frozen=True, slots=True)
class Bar:
    """From the bottom up: what succeeded, what failed, what was cancelled."""

    x: float
    width: float
    succeeded: float
    failed: float
    cancelled: float
    title: str


@dataclass(frozen=True, slots=True)
class Throughput:
    bars: tuple[Bar, ...]
    # What the top of the picture stands for.
    most: str
    summary: str


@dataclass(frozen=True, slots=True)
class Latency:
    # Points of lines, a gap where nothing ended.
    p50: tuple[str, ...]
    p95: tuple[str, ...]
    most: str
    summary: str


@dataclass(frozen=True, slots=True)
class Spark:
    bars: tuple[tuple[float, float], ...]
    width: float
    summary: str


def throughput(pulse: Pulse) -> Throughput:
    totals = [sum(each) for each in zip(pulse.succeeded, pulse.failed, pulse.cancelled, strict=True)]
    most = max(*totals, 1)
    step = 100 / len(totals)
    bars = []
    for at, total in enumerate(totals):
        if total:
            since = _clock(pulse, at)
            told = f"{since}: {pulse.succeeded[at]} succeeded, {pulse.failed[at]} failed"
            heights = [100 * each[at] / most for each in (pulse.succeeded, pulse.failed, pulse.cancelled)]
            bars.append(Bar(at * step + step * 0.1, step * 0.8, *heights, told))
    failed = sum(pulse.failed)
    summary = f"{number(pulse.ended)} runs ended, {number(failed)} of them failed; at most {number(most)} at a time"
    return Throughput(tuple(bars), number(most), summary)


def latency(pulse: Pulse) -> Latency:
    known = [each for each in pulse.p95_seconds if each is not None]
    most = max(*known, 0.001, 0.001)
    told = f"95 of 100 took at most {took(max(known))}" if known else "nothing ended"
    return Latency(_lines(pulse.p50_seconds, most), _lines(pulse.p95_seconds, most), took(most), told)


def spark(counts: Sequence[int]) -> Spark:
    """A row of small bars; one that is not zero can be seen."""
    most = max((*counts, 1))
    step = 100 / max(len(counts), 1)
    bars = tuple((at * step, max(12.0, 100 * each / most)) for at, each in enumerate(counts) if each)
    return Spark(bars, step * 0.8, f"at most {number(most)} at a time, {number(counts[-1]) if counts else 0} now")


def _lines(values: Sequence[float | None], most: float) -> tuple[str, ...]:
    """Points of each stretch without gaps; one point alone becomes a short line."""
    step = 100 / len(values)
    lines: list[list[tuple[float, float]]] = [[]]
    for at, each in enumerate(values):
        if each is None:
            lines.append([])
        else:
            lines[-1].append((at * step + step / 2, 100 - 100 * each / most))
    found = []
    for line in lines:
        points = (
            line if len(line) != 1 else [(line[0][0] - step * 0.4, line[0][1]), (line[0][0] + step * 0.4, line[0][1])]
        )
        if points:
            found.append(" ".join(f"{x:.2f},{y:.2f}" for x, y in points))
    return tuple(found)


def _clock(pulse: Pulse, at: int) -> str:
    since: datetime = pulse.now_at - timedelta(seconds=(len(pulse.succeeded) - at) * pulse.bucket_seconds)
    return f"{since:%H:%M}" if pulse.bucket_seconds >= 60 else f"{since:%H:%M:%S}"
