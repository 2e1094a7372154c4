"""Durations: checked where callers pass them, read from and written as text such as `15m`, formatted for people."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

from pgqrs.errors import ConfigError

# A century: anything longer is a mistake in the unit, and time arithmetic stays far from every database's end.
LONGEST_SECONDS = 100 * 365.25 * 86400
LONGEST = timedelta(seconds=LONGEST_SECONDS)
_LENGTH = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d|w)", re.ASCII)
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def checked_seconds(value: float | timedelta, what: str, *, allow_zero: bool = True, least: float = 0.0) -> float:
    """Return `value` in seconds, or raise ConfigError that names `what` and the value.

    Refuses NaN, infinity, anything below `least`, zero unless `allow_zero`, and more than 100 years.
    """
    seconds: Any = value.total_seconds() if isinstance(value, timedelta) else value
    # NaN is within no bounds; math.isfinite raises for an int beyond every float.
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not least <= seconds <= LONGEST_SECONDS
        or (seconds == 0 and not allow_zero)
    ):
        lowest = f"from {least:g}" if least or allow_zero else "above 0, up"
        raise ConfigError(f"{what} must be seconds (or a timedelta) {lowest} to 100 years, got {shown(value)}")
    return float(seconds)


def shown(value: object) -> str:
    """Return `repr(value)`, shortened; a `repr` that raises gives the class's name."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a user's __repr__ must not replace the error that names the value
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 60 else text[:57] + "..."


def format_duration(seconds: float) -> str:
    """A length of time in its two largest units: `3 min 20 s`, `2 d 4 h`, `0.4 s`."""
    if not math.isfinite(seconds):
        return "an unknown time"
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
        if len(parts) == 2:
            break
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def parse_duration(text: str) -> timedelta:
    """`90s`, `15m`, `2h`, `7d`, as a length of time of at most a century."""
    seconds = seconds_in(text)
    if seconds is None or seconds > LONGEST_SECONDS:
        raise ConfigError(f"{text[:40]!r} is no length of time", hint="write 90s, 15m, 2h, 7d or 2w")
    return timedelta(seconds=seconds)


def seconds_in(text: str) -> float | None:
    """Return the seconds that the text stands for, which may be too many; None when it is no length of time."""
    match = _LENGTH.fullmatch(text)
    return float(match.group(1)) * _SECONDS[match.group(2)] if match else None


def write_duration(length: timedelta) -> str:
    """Return the text that `parse_duration` reads back: in the largest unit that gives a whole number."""
    for unit, size in _SECONDS.items():
        count, rest = divmod(length, timedelta(seconds=size))
        if count and not rest:
            return f"{count}{unit}"
    return f"{length / timedelta(seconds=1):.6f}s" if length else "0s"
