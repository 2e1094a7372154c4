"""What callers may pass: each check names the argument, the value and what is allowed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pgqrs.errors import ConfigError

MOST_PER_CALL = 50_000


def checked_time(argument: str, value: datetime | None) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ConfigError(
            f"{argument} must be a datetime with a time zone, not {value!r}; "
            "use datetime.now(UTC) + timedelta(...), or .replace(tzinfo=...)"
        )
    if not 1970 <= value.year <= 2970:
        raise ConfigError(f"{argument} must lie between the years 1970 and 2970, not {value!r}")
    return value


def checked_whole(argument: str, value: int, *, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{argument} must be a whole number from {least:,} to {most:,}, not {value!r}")
    return value


def checked_priority(value: int) -> int:
    return checked_whole("priority", value, least=-(2**31), most=2**31 - 1)


def checked_batch(argument: str, value: int) -> int:
    return checked_whole(argument, value, least=1, most=MOST_PER_CALL)


def checked_attributes(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return value
    raise ConfigError(f"attributes must be a dict such as {{'customer': 'c42'}}, not {value!r}")


def checked_key(value: object) -> str:
    """An idempotency key: long enough for any id, short enough for an index."""
    if isinstance(value, str) and 1 <= len(value) <= 500 and value.isprintable():
        return value
    raise ConfigError(f"idempotency key {str(value)[:60]!r} is not allowed; use 1 to 500 printable characters")


def checked_run_id(value: int) -> int:
    return checked_whole("run_id", value, least=0, most=2**63 - 1)


def check_texts(**given: str | None) -> None:
    """Reasons, actors, names of steps: text that every database stores, or None."""
    for argument, value in given.items():
        if value is None:
            continue
        if not isinstance(value, str) or "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
            raise ConfigError(f"{argument} must be text without NUL and lone surrogates, not {str(value)[:60]!r}")
