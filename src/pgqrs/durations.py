"""Lengths of time that callers may pass: seconds or a timedelta, within what every database can add to a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pgqrs.errors import ConfigError

# A century: anything longer is a mistake in the unit, and time arithmetic stays far from every database's end.
LONGEST_SECONDS = 100 * 365.25 * 86400


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
