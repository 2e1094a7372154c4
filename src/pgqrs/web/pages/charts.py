"""Pictures as numbers: where bars and lines stand. Templates draw them; heights and widths are parts of 100."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log

from pgqrs.db.views.throughput import Throughput
from pgqrs.web.pages.rendering import number, took

_LEAST_SECONDS = 0.001
# In buckets; beyond that a line would tell of a time of which nothing is known.
_LONGEST_GAP = 6


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
class ThroughputChart:
    bars: tuple[Bar, ...]
    # What the top of the picture stands for.
    most: str
    summary: str


@dataclass(frozen=True, slots=True)
class Latency:
    # Points of lines.
    p50: tuple[str, ...]
    p95: tuple[str, ...]
    least: str
    most: str
    summary: str


@dataclass(frozen=True, slots=True)
class Spark:
    bars: tuple[tuple[float, float], ...]
    width: float
    summary: str


def throughput(pulse: Throughput) -> ThroughputChart:
    totals = [sum(each) for each in zip(pulse.succeeded, pulse.failed, pulse.cancelled, strict=True)]
    most = max(*totals, 1)
    step = 100 / len(totals)
    bars = []
    for at, total in enumerate(totals):
        if total:
            since = _clock(pulse, at)
            told = f"{since}: {pulse.succeeded[at]} succeeded, {pulse.failed[at]} failed"
            succeeded, failed, cancelled = (
                100 * each[at] / most for each in (pulse.succeeded, pulse.failed, pulse.cancelled)
            )
            bars.append(Bar(at * step + step * 0.1, step * 0.8, succeeded, failed, cancelled, told))
    ended, lost = number(pulse.ended), number(sum(pulse.failed))
    summary = f"{ended} runs ended, {lost} of them failed; at most {number(most)} at a time"
    return ThroughputChart(tuple(bars), number(most), summary)


def latency(pulse: Throughput) -> Latency:
    """On a logarithmic scale: half of the runs may take milliseconds, and some of them minutes."""
    known = sorted(each for each in (*pulse.p50_seconds, *pulse.p95_seconds) if each is not None)
    if not known:
        return Latency((), (), "", "", "nothing ended")
    least, most = max(known[0], _LEAST_SECONDS) / 1.5, max(known[-1], _LEAST_SECONDS) * 1.5
    slowest = max(each for each in pulse.p95_seconds if each is not None)
    return Latency(
        _lines(pulse.p50_seconds, least, most),
        _lines(pulse.p95_seconds, least, most),
        took(least),
        took(most),
        f"95 of 100 took at most {took(slowest)}",
    )


def spark(counts: Sequence[int]) -> Spark:
    """A row of small bars; one that is not zero can be seen."""
    most = max((*counts, 1))
    step = 100 / max(len(counts), 1)
    bars = tuple((at * step, max(12.0, 100 * each / most)) for at, each in enumerate(counts) if each)
    return Spark(bars, step * 0.8, f"at most {number(most)} at a time, {number(counts[-1]) if counts else 0} now")


def _lines(values: Sequence[float | None], least: float, most: float) -> tuple[str, ...]:
    """Points of lines; where nothing ended for long a line ends. One point alone becomes a short line."""
    step = 100 / len(values)
    height = log(most / least)
    lines: list[list[tuple[float, float]]] = [[]]
    for at, each in enumerate(values):
        if each is not None:
            x, y = at * step + step / 2, 100 - 100 * log(max(each, least) / least) / height
            if lines[-1] and x - lines[-1][-1][0] > _LONGEST_GAP * step:
                lines.append([])
            lines[-1].append((x, y))
    found = []
    for line in lines:
        points = line
        if len(line) == 1:
            [(x, y)] = line
            points = [(x - step * 0.4, y), (x + step * 0.4, y)]
        if points:
            found.append(" ".join(f"{x:.2f},{y:.2f}" for x, y in points))
    return tuple(found)


def _clock(pulse: Throughput, at: int) -> str:
    since: datetime = pulse.now_at - timedelta(seconds=(len(pulse.succeeded) - at) * pulse.bucket_seconds)
    return f"{since:%H:%M}" if pulse.bucket_seconds >= 60 else f"{since:%H:%M:%S}"
