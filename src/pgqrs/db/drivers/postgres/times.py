"""Times of PostgreSQL as datetimes, also those that Python has no datetime for.

asyncpg raises OverflowError for a time before the year 1 or after 9999, and gives `infinity` as a datetime without a
time zone, which no other time can be compared with. One such row would fail every statement that reads it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg

from pgqrs.clock import EARLIEST, LATEST

_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INFINITY = 2**63 - 1
_MINUS_INFINITY = -(2**63)
_INFINITIES = {_INFINITY: datetime.max, _MINUS_INFINITY: datetime.min}  # noqa: DTZ901 - as asyncpg has them


class Times:
    """Decodes the times of one connection."""

    def __init__(self) -> None:
        # While a statement of the user's runs: its rows are the user's, and come as asyncpg would give them.
        self.is_users = False

    def decode(self, value: tuple[int]) -> datetime:
        try:
            return _POSTGRES_EPOCH + timedelta(0, 0, value[0])
        except OverflowError:
            if self.is_users:
                # A stand-in could find its way back into the user's table.
                return _as_asyncpg(value[0])
            return LATEST if value[0] > 0 else EARLIEST


class TimeSafeConnection(asyncpg.Connection):
    """A connection whose times can all be read."""

    __slots__ = ("times",)

    async def read_every_time(self) -> None:
        """Set the codec; asks the server nothing. As tuples it is no slower than asyncpg's own."""
        self.times: Times = Times()
        await self.set_type_codec(
            "timestamptz", schema="pg_catalog", encoder=encode_time, decoder=self.times.decode, format="tuple"
        )


def encode_time(value: Any) -> tuple[int]:
    """Encode what asyncpg takes for a timestamptz: local time where there is no time zone, and its infinities."""
    if not isinstance(value, datetime):
        if not isinstance(value, date):
            raise TypeError(f"expected a datetime.date or datetime.datetime instance, got {value!r}")
        value = datetime(value.year, value.month, value.day).astimezone()
    if value.tzinfo is None and value in _INFINITIES.values():
        return (_INFINITY if value.year > 1 else _MINUS_INFINITY,)
    return ((value.astimezone(UTC) - _POSTGRES_EPOCH) // _MICROSECOND,)


def _as_asyncpg(number: int) -> datetime:
    if number not in _INFINITIES:
        raise OverflowError("date value out of range")
    return _INFINITIES[number]
