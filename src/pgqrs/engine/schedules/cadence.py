"""When a schedule's slots are: cron in a time zone, fixed intervals, one point in time. Pure: it asks no clock.

Around daylight-saving changes there are two kinds of cron, told apart as Debian's cron does:

    at fixed times      `30 2 * * *`                every wall time once: one that the clock jumps over happens at the
                                                    next valid instant, one that comes twice happens the first time
    running             `* * * * *`, `0 * * * *`    minute or hour is a `*`: every instant whose wall time matches,
                                                    so nothing for the hour that is missing, and both of the doubled

cronsim knows the calendar and is asked about wall times only. Its own treatment of zones (2.8) is not used: six
fields it always takes for running, so that `0 30 2 * * *` is lost in the gap; `44 * * * *` misses one in the
half-hour overlap of Lord Howe; `*/10 3 * * *` never returns at the overlap of Chatham.
"""

from __future__ import annotations

import difflib
import functools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from pgqrs.clock import EPOCH, LAST_YEAR
from pgqrs.errors import ConfigError
from pgqrs.text.durations import LONGEST

Kind = Literal["cron", "interval", "once"]

# Shorter ones are a loop, and belong into a handler.
LEAST_INTERVAL = timedelta(seconds=1)
_LONGEST_CRON = 200
_LAST = datetime(LAST_YEAR, 1, 1, tzinfo=UTC)
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True)
class Cadence:
    """The times of a schedule. Made by `of`, which refuses what cannot be right."""

    kind: Kind
    cron: str | None = None
    every: timedelta | None = None
    at: datetime | None = None
    timezone: str = "UTC"
    # Intervals are counted from here, so that they do not drift; the schedule's creation.
    anchor: datetime | None = None

    @classmethod
    def of(
        cls,
        *,
        cron: str | None = None,
        every: timedelta | None = None,
        at: datetime | None = None,
        timezone: str = "UTC",
    ) -> Cadence:
        """Exactly one of cron (five fields, or six with seconds first), every and at; else ConfigError."""
        if sum(given is not None for given in (cron, every, at)) != 1:
            raise ConfigError("a schedule takes exactly one of cron, every and at")
        _checked_zone(timezone)
        if cron is None and timezone != "UTC":
            raise ConfigError(f"timezone={timezone!r} means something for cron only", hint="leave it out")
        if cron is not None:
            return cls("cron", cron=_checked_cron(cron), timezone=timezone)
        if every is not None:
            return cls("interval", every=_checked_interval(every))
        return cls("once", at=_checked_at(at))

    def anchored(self, anchor: datetime) -> Cadence:
        return replace(self, anchor=anchor)

    def next_after(self, instant: datetime) -> datetime | None:
        """The first slot later than the instant, in UTC; None when there is none any more."""
        return next(self.slots_after(instant), None)

    def slots_between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The slots in (after, until], rising."""
        for slot in self.slots_after(after):
            if slot > until:
                return
            yield slot

    def newest(self, after: datetime, until: datetime, *, most: int) -> list[datetime]:
        """The last `most` slots in (after, until], rising; how long that time is does not matter."""
        span = timedelta(minutes=1)
        while after < until:
            begin = until - min(span, until - after)
            found = deque(self.slots_between(begin, until), maxlen=most)
            if len(found) == most or begin == after:
                return list(found)
            span *= 4
        return []

    def slots_after(self, instant: datetime) -> Iterator[datetime]:
        """All slots later than the instant, strictly rising, in UTC."""
        instant = max(instant.astimezone(UTC), EPOCH)
        match self.kind:
            case "cron":
                slots = self._running(instant) if self._runs_through() else self._at_fixed_times(instant)
            case "interval":
                slots = self._at_intervals(instant)
            case "once":
                slots = (at.astimezone(UTC) for at in (self.at,) if at is not None and at > instant)
        for slot in slots:
            if slot >= _LAST:
                return
            yield slot

    def _at_intervals(self, instant: datetime) -> Iterator[datetime]:
        if self.every is None or self.anchor is None:
            raise ConfigError("an interval is counted from an anchor", hint="give it one with anchored()")
        n = max(1, (instant - self.anchor) // self.every + 1)
        with suppress(OverflowError):
            # Anchored at the end of all time, as only a row that was changed by hand is, there is no slot.
            while True:
                yield (self.anchor + n * self.every).astimezone(UTC)
                n += 1

    def _runs_through(self) -> bool:
        return _parsed(self.cron or "").runs_through

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        """The matching wall times later than the given one."""
        return _parsed(self.cron or "").walls_after(wall)

    def _at_fixed_times(self, instant: datetime) -> Iterator[datetime]:
        zone = ZoneInfo(self.timezone)
        # Several wall times may be jumped over at once: together they are one slot.
        last = instant
        for wall in self._walls(instant.astimezone(zone).replace(tzinfo=None)):
            slot = _first_instant(zone, wall)
            if slot > last:
                last = slot
                yield slot

    def _running(self, instant: datetime) -> Iterator[datetime]:
        zone = ZoneInfo(self.timezone)
        # Whole seconds: no slot lies between.
        done: datetime | None = instant.replace(microsecond=0)
        while done is not None:
            done = yield from self._until_the_offset_changes(zone, done)

    def _until_the_offset_changes(self, zone: ZoneInfo, done: datetime) -> Generator[datetime, None, datetime | None]:
        """As long as one offset holds, wall time is UTC and a constant. Returns the last second of that."""
        offset = _offset(zone, done + _SECOND)
        for wall in self._walls((done + offset).replace(tzinfo=None)):
            slot = wall.replace(tzinfo=UTC) - offset
            changed = _first_change(zone, done + _SECOND, slot, offset)
            if changed is not None:
                return changed - _SECOND
            yield slot
            done = slot
        return None


class _Cron:
    """A parsed expression, asked about wall times without a zone."""

    def __init__(self, text: str) -> None:
        self._sim = CronSim(text, datetime(2000, 1, 1))  # noqa: DTZ001 - a wall time
        # `0-59` says the same as `*`.
        self.runs_through = (
            self._sim.parts[1].startswith("*")
            or self._sim.parts[2].startswith("*")
            or len(self._sim.minutes) == 60
            or len(self._sim.hours) == 24
        )
        self._text = text

    def walls_after(self, wall: datetime) -> Iterator[datetime]:
        return iter(CronSim(self._text, wall))

    def ever_matches(self) -> bool:
        return next(self._sim, None) is not None


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> _Cron:
    return _Cron(text)


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


def _first_instant(zone: ZoneInfo, wall: datetime) -> datetime:
    """When clocks in the zone first show this wall time or, if they jump over it, a later one."""
    before = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if after >= before:
        return before
    # In a gap the two readings lie on either side of the jump.
    return _first_in(after, before, lambda instant: _offset(zone, instant) == _offset(zone, before))


def _first_change(zone: ZoneInfo, begin: datetime, end: datetime, offset: timedelta) -> datetime | None:
    """The first instant in (begin, end] with another offset."""
    # Day by day: no zone has changed its offset and taken that back within one.
    while begin < end:
        there = min(begin + _DAY, end)
        if _offset(zone, there) != offset:
            return _first_in(begin, there, lambda instant: _offset(zone, instant) != offset)
        begin = there
    return None


def _first_in(low: datetime, high: datetime, holds: Callable[[datetime], bool]) -> datetime:
    """The first whole second in (low, high] for which it holds, as it does for `high` and not for `low`."""
    while high - low > _SECOND:
        middle = low + ((high - low) // _SECOND // 2) * _SECOND
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _checked_cron(cron: str) -> str:
    if not isinstance(cron, str):
        raise ConfigError(f"cron must be text such as '0 9 * * *', not {cron!r}")
    text = " ".join(_SHORTHANDS.get(cron.strip().lower(), cron).split())
    shown = cron if len(cron) <= 60 else cron[:57] + "..."
    if len(text) > _LONGEST_CRON:
        raise ConfigError(f"cron {shown!r} is longer than {_LONGEST_CRON} characters")
    try:
        parsed = _Cron(text)
    except (CronSimError, AssertionError, ValueError, TypeError) as error:
        if _is_only_too_late_in_the_month(text):
            raise _never(shown) from None
        raise ConfigError(
            f"cron {shown!r} cannot be read ({str(error) or 'bad expression'})",
            hint="it is five fields (minute, hour, day of month, month, day of week), or six with seconds first",
        ) from None
    if not parsed.ever_matches():
        raise _never(shown)
    return text


def _is_only_too_late_in_the_month(text: str) -> bool:
    """30 February: every field can be read, in some other month the day is there."""
    fields = text.split()
    try:
        _Cron(" ".join([*fields[:-2], "*", fields[-1]]))
        _Cron(" ".join([*fields[:-3], "*", *fields[-2:]]))
    except (CronSimError, AssertionError, ValueError, TypeError, IndexError):
        return False
    return True


def _never(shown: str) -> ConfigError:
    return ConfigError(f"cron {shown!r} never matches: there is no such day")


def _checked_interval(every: timedelta) -> timedelta:
    if not isinstance(every, timedelta) or not LEAST_INTERVAL <= every <= LONGEST:
        raise ConfigError(f"every must be from one second to 100 years, not {every!r}")
    return every


def _checked_at(at: datetime | None) -> datetime:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise ConfigError(f"at must be a datetime with a time zone, not {at!r}")
    if not EPOCH.year <= at.year < _LAST.year:
        raise ConfigError(f"at must lie between the years 1970 and 2970, not {at!r}")
    return at.astimezone(UTC)


def _checked_zone(name: str) -> None:
    try:
        if not isinstance(name, str) or len(name) > 100:
            raise ValueError(name)
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # A folder of zones ("America") is an OSError.
        near = difflib.get_close_matches(name, available_timezones(), n=1) if isinstance(name, str) else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        shown = repr(name)[:60]
        raise ConfigError(f"there is no time zone {shown}", hint=f"use a name like 'Europe/Berlin'{hint}") from None
