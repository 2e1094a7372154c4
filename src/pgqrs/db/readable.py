"""Rows of SQLite and Turso as the schema promises them, whatever is in the file.

A column of SQLite holds what is written to it: text among the numbers, a blob among the texts, a number that is no
time. PostgreSQL refuses those. Here each becomes a value of its column's type, so that one such row fails neither
the statement that reads it nor the code behind that. `pgqrs doctor` names the row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pgqrs.clock import EARLIEST, EPOCH, LATEST

# The columns of the schema by their type; a test holds it against the migrations. Times are told by their names.
IDS = frozenset((
    "queue_id", "worker_id", "message_id", "run_id", "workflow_id", "event_id", "signal_id",
    "schedule_id", "aggregate_id", "lease_token", "leased_by", "archived_by", "parent_run_id",
    "dead_letter_of", "last_run_id",
))  # fmt: skip
INTEGERS = frozenset((
    "port", "priority", "attempts", "max_attempts", "attempt", "ordinal", "sequence", "catch_up_limit",
))  # fmt: skip
NUMBERS = frozenset(("interval_seconds", "jitter_seconds", "keep_seconds"))
JSON = frozenset((
    "info", "payload", "input_schema", "input", "output", "error", "headers", "attributes", "data",
    "options",
))  # fmt: skip
TEXTS = frozenset((
    "name", "hostname", "status", "dead_letter", "last_error", "idempotency_key", "waiting_for",
    "delete_reason", "error_signature", "step_id", "event_type", "actor", "event_uuid", "workflow",
    "kind", "cron", "timezone", "overlap", "catch_up", "state", "what", "value",
))  # fmt: skip

_Shape = tuple[type, ...]
# Beyond this, queries would have more shapes than a schema has: rows are looked at one by one then.
_MOST_SHAPES = 10_000
_LARGEST = 2**63 - 1
_NUMBER = re.compile(r"[ \t\n\r\f\v]*([+-]?[0-9]{1,30})")


class Columns:
    """The result columns of one statement: what their values must be, and the shapes of rows found to be so."""

    def __init__(self, names: Sequence[str]) -> None:
        self.times: tuple[int, ...] = tuple(i for i, name in enumerate(names) if is_time(name))
        self._wanted = tuple(_wanted(name) for name in names)
        self._known: set[_Shape] = set()

    def readable(self, rows: list[Any]) -> list[Any]:
        known, times = self._known, self.times
        found: list[Any] = []
        for row in rows:
            # Most rows have the types of one before them: that is one look-up, not one for each column.
            shape = tuple(map(type, row))
            if shape not in known and not self._learn(shape):
                row = self._mended(row)  # noqa: PLW2901 - from here on it is the row
            if times:
                values = list(row)
                for i in times:
                    if (value := values[i]) is not None:
                        try:
                            values[i] = EPOCH + timedelta(0, 0, value)
                        except OverflowError:
                            values[i] = LATEST if value > 0 else EARLIEST
                row = tuple(values)  # noqa: PLW2901
            found.append(row)
        return found

    def _learn(self, shape: _Shape) -> bool:
        # No statement of ours gives bytes, whatever it computes.
        fits = bytes not in shape and all(
            wanted is None or kind is type(None) or kind is wanted or (wanted is float and kind is int)
            for kind, wanted in zip(shape, self._wanted, strict=True)
        )
        if fits and len(self._known) < _MOST_SHAPES:
            self._known.add(shape)
        return fits

    def _mended(self, row: Sequence[Any]) -> tuple[Any, ...]:
        values = [
            value if value is None or _is(wanted, value) else _as(wanted or str, value)
            for value, wanted in zip(row, self._wanted, strict=True)
        ]
        for i in self.times:
            if isinstance(row[i], str | bytes):
                # As SQLite sorts them: after every number.
                values[i] = _LARGEST
            elif isinstance(row[i], float) and math.isfinite(row[i]) and abs(row[i]) < _LARGEST:
                # Never before the time itself: a page that begins behind it must not find it again.
                values[i] = math.ceil(row[i])
        return tuple(values)


_columns: dict[tuple[str, ...], Columns] = {}


def readable(names: Sequence[str], rows: list[Any]) -> list[Any]:
    """Return the rows with their times decoded, and every value of the type that its column has."""
    key = tuple(names)
    columns = _columns.get(key)
    if columns is None:
        # Statements are ours: there are only so many of them.
        columns = _columns[key] = Columns(key)
    return columns.readable(rows)


def most_behind(after: datetime, limit: int) -> int:
    """Return how many rows a page may have that begins behind a time.

    None behind one that only stands in for a later time: the page would find the same rows again, for ever.
    """
    return 0 if after == LATEST else limit


def is_time(column: str) -> bool:
    """Return which result columns hold a time: the schema's naming is the rule (a test guards it)."""
    return column.endswith(("_at", "_after"))


def _wanted(name: str) -> type | None:
    if name in IDS or name in INTEGERS or is_time(name):
        return int
    if name in NUMBERS:
        return float
    return str if name in TEXTS or name in JSON else None


def _is(wanted: type | None, value: Any) -> bool:
    return type(value) is wanted if wanted is not None else type(value) is not bytes


def _as(wanted: type, value: Any) -> Any:
    if wanted is str:
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if isinstance(value, float) and wanted is int:
        # As far as a 64-bit number goes: for a time that is out of its range, too.
        return int(value) if math.isfinite(value) and abs(value) < _LARGEST else _LARGEST * (1 if value > 0 else -1)
    if isinstance(value, int | float):
        return wanted(value)
    # As SQLite casts it: lists are sorted by that.
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    number = _NUMBER.match(text)
    return wanted(min(max(int(number[1]), -_LARGEST - 1), _LARGEST)) if number else wanted(0)
