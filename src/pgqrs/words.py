"""Figures as people say them."""

from __future__ import annotations

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def lasting(seconds: float) -> str:
    """A length of time in its two largest units: `3 min 20 s`, `2 d 4 h`, `0.4 s`."""
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
