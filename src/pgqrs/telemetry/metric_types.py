"""Metric families and their text, as Prometheus reads it: small enough to need no library.

Whoever writes to a family holds its lock for that; a family is read without it. A scrape may thus see one observation
of a histogram half written, which the next one corrects.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Names of workflows and queues come from the database, where anybody may make them: a family has so many of them.
MOST_NAMES = 200
OTHER = "other"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Sample(NamedTuple):
    """One line: the end of its name (`_bucket`), its labels, its value."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(Protocol):
    """A metric with all its labels."""

    name: str
    help: str
    kind: str

    def samples(self) -> Iterator[Sample]: ...


class Counter:
    """Only grows."""

    kind = "counter"

    def __init__(self, name: str, help_: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help_
        self.labels: tuple[str, ...] = tuple(labels)
        self.values: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def add(self, values: tuple[str, ...] = (), number: int = 1) -> None:
        """With a number of 0 it is there from now on, so that its first increase can be seen as one."""
        self.values[values] = self.values.get(values, 0) + number

    def samples(self) -> Iterator[Sample]:
        for values, number in sorted(self.values.items()):
            yield Sample("", tuple(zip(self.labels, values, strict=True)), number)


class Buckets:
    """The observations of one set of labels."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Sequence[float] = bounds
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.sum: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Histogram:
    """How often a value was at most so large."""

    kind = "histogram"

    def __init__(self, name: str, help_: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help_
        self.labels: tuple[str, ...] = tuple(labels)
        self.bounds: tuple[float, ...] = tuple(bounds)
        self.values: dict[tuple[str, ...], Buckets] = {} if labels else {(): Buckets(self.bounds)}

    def of(self, *values: str) -> Buckets:
        found = self.values.get(values)
        if found is None:
            found = self.values[values] = Buckets(self.bounds)
        return found

    def samples(self) -> Iterator[Sample]:
        for values, buckets in sorted(self.values.items(), key=lambda item: item[0]):
            labels = tuple(zip(self.labels, values, strict=True))
            counted = 0
            for bound, count in zip((*self.bounds, math.inf), list(buckets.counts), strict=True):
                counted += count
                yield Sample("_bucket", (*labels, ("le", number_text(bound))), counted)
            yield Sample("_sum", labels, buckets.sum)
            yield Sample("_count", labels, counted)


class Gauge:
    """What is so at the moment: (label values, number), asked for when it is read."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help_: str,
        labels: Sequence[str] = (),
        *,
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    ) -> None:
        self.name = name
        self.help = help_
        self.labels: tuple[str, ...] = tuple(labels)
        self._read = read

    def samples(self) -> Iterator[Sample]:
        for values, number in self._read():
            yield Sample("", tuple(zip(self.labels, values, strict=True)), number)


class LabelNames:
    """Lets so many names be labels, those that come first; what comes later is `other`."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


def text_of(families: Iterable[Family]) -> str:
    """The families in the text format of Prometheus, version 0.0.4."""
    lines: list[str] = []
    for family in families:
        help_ = family.help.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {family.name} {help_}", f"# TYPE {family.name} {family.kind}"]
        lines += [_line(family.name, sample) for sample in family.samples()]
    return "\n".join([*lines, ""])


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sample.labels)
    return (
        f"{name}{sample.suffix}{{{labels}}} {number_text(sample.value)}"
        if labels
        else (f"{name}{sample.suffix} {number_text(sample.value)}")
    )


def number_text(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
