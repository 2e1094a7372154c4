"""Whose time it is: the database's in production, a hand-set one in tests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

# Microseconds are counted from here, and nothing is stored that is earlier: before everything, in queries.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The last year of a time that a caller may give, so that arithmetic stays far from the end of every database's range.
LAST_YEAR = 2970
# What a stored time that Python has no datetime for (BC, infinity, after the year 9999) is read as. A day within
# Python's own limits, so that no time zone and no comparison overflows.
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
# How people are shown it.
UNREADABLE = "unreadable"
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """A time as a number: since 1970, exactly."""
    return (moment - EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    return EPOCH + number * _MICROSECOND


def is_in_range(moment: datetime) -> bool:
    """Return whether a time that a caller gives lies between 1970 and the end of 2970."""
    return EPOCH.year <= moment.year <= LAST_YEAR


def is_readable(moment: datetime) -> bool:
    """Return False for a time that stands in for one that Python has no datetime for."""
    return moment not in (EARLIEST, LATEST)


class Clock(Protocol):
    """What is bound as `:now` in every query."""

    def now(self) -> datetime | None:
        """None lets the database's own clock decide; a time overrules it."""
        ...


class DatabaseClock:
    """Production: no worker's clock is ever asked."""

    def now(self) -> None:
        return None


class ManualClock:
    """Tests: time stands still until it is advanced, and whoever waits for time is woken then."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float = 0, **parts: float) -> None:
        self._now += timedelta(seconds=seconds, **parts)
        for listener in self._listeners:
            listener()

    def on_advance(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)
