"""Figures as people say them."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from pgqrs.errors import ConfigError

_LENGTH = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d|w)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST = 100 * 365.25 * 86_400
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def lasting(seconds: float) -> str:
    """A length of time in its two largest units: `3 min 20 s`, `2 d 4 h`, `0.4 s`."""
    if not math.isfinite(seconds):
        return "an unknown time"
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit, length in _UNITS:
        count, left = divmod(left, length)
        if count or parts:
            parts.append((count, unit))
        if len(parts) == 2:
            break
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def length(text: str) -> timedelta:
    """`90s`, `15m`, `2h`, `7d`, as a length of time of at most a century."""
    match = _LENGTH.fullmatch(text)
    seconds = float(match.group(1)) * _SECONDS[match.group(2)] if match else 2 * _LONGEST
    if seconds > _LONGEST:
        raise ConfigError(f"{text[:40]!r} is no length of time; write 90s, 15m, 2h, 7d or 2w")
    return timedelta(seconds=seconds)
