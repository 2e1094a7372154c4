"""Which rows cannot be read as the schema has them: written by hand, by another tool, or by a client with SQL.

The library reads them all the same, as something else (`readable.py`, `drivers/postgres_times.py`). Here they are
named, each column with the statement that makes it readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgqrs.db import migrations
from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import Query, load
from pgqrs.db.readable import IDS, INTEGERS, JSON, NUMBERS, TEXTS, is_time

_SQL = load(__package__, "unreadable_rows")

# How much of a table a quick look reads: its newest rows.
NEWEST = 1_000

# What a row is named by, and sorted by. Policies of retention are few, and have names.
_KEYS = {
    "pgqrs_queues": "queue_id",
    "pgqrs_workers": "worker_id",
    "pgqrs_messages": "message_id",
    "pgqrs_archived_messages": "message_id",
    "pgqrs_workflows": "workflow_id",
    "pgqrs_workflow_runs": "run_id",
    "pgqrs_workflow_steps": "run_id",
    "pgqrs_workflow_events": "event_id",
    "pgqrs_signals": "signal_id",
    "pgqrs_outbox_events": "event_id",
    "pgqrs_schedules": "schedule_id",
    "pgqrs_schedule_slots": "schedule_id",
    "pgqrs_run_attributes": "run_id",
    "pgqrs_retention": "what",
}


# What has a row here can do without it; and several would become the same row.
_WITHOUT_LOSS = frozenset({"pgqrs_schedule_slots", "pgqrs_run_attributes", "pgqrs_retention"})


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A column with rows that cannot be read; `keys` are the first of them, `fix` is SQL for all of them."""

    table: str
    column: str
    key: str
    keys: tuple[object, ...]
    rows: int
    fix: str

    def __str__(self) -> str:
        rows = f"{self.rows:,} rows" if self.rows != 1 else "1 row"
        named = f" ({self.key} {', '.join(map(str, self.keys))}{', ...' if self.rows > len(self.keys) else ''})"
        return f"{self.table}.{self.column} in {rows}{named}"


@store_call(Kind.READ, idempotent=True)
async def unreadable(db: Database, *, whole: bool) -> list[Unreadable]:
    """Every column with an unreadable value; of the newest rows only, unless the `whole` tables are read."""
    columns: dict[str, list[str]] = {}
    for table, column in sorted((await migrations.shape(db)).columns):
        columns.setdefault(table, []).append(column)
    rows = "every_row" if whole else "newest_rows"
    return [each for table in _KEYS for each in await _of_table(db, table, columns.get(table, []), rows)]


async def _of_table(db: Database, table: str, columns: Sequence[str], rows: str) -> list[Unreadable]:
    def text(name: str, **words: str) -> str:
        query = _SQL[name]
        found = (db.dialect.is_postgres and query.postgres_text) or query.text
        found = "\n".join(line for line in found.splitlines() if not line.startswith("--"))
        given = {"a_table": table, "a_key": _KEYS[table], **words}
        for word, stands_for in given.items():
            found = found.replace(word, stands_for)
        return found

    kinds = {column: kind for column in columns if (kind := _kind(table, column)) is not None}
    wrong = {column: text(f"wrong_{kind}", a_column=column) for column, kind in kinds.items()}
    counts = ", ".join(text("counted", is_wrong=each) for each in wrong.values())
    the_rows = text(rows)
    [counted] = await db.fetch(Query("count_wrong", text("count_wrong", its_counts=counts, the_rows=the_rows)))
    found = []
    for column, count in zip(wrong, counted, strict=True):
        if count:
            named = text("name_wrong", the_rows=the_rows, is_wrong=wrong[column])
            keys = tuple(row[0] for row in await db.fetch(Query("name_wrong", named)))
            instead = text(f"instead_{kinds[column]}")
            verb = "delete_wrong" if table in _WITHOUT_LOSS else "fix_wrong"
            fix = text(verb, is_wrong=wrong[column], a_column=column, instead=instead)
            # For people, who name the table as they like.
            fix = " ".join(fix.replace("t.", "").replace(table, db.dialect.table(table), 1).split())
            found.append(Unreadable(table, column, _KEYS[table], keys, count, fix))
    return found


def _kind(table: str, column: str) -> str | None:
    if (table, column) == ("pgqrs_workflow_runs", "parent_run_id"):
        return "parent"
    if is_time(column):
        return "time"
    kinds = {"id": IDS, "integer": INTEGERS, "number": NUMBERS, "text": TEXTS, "json": JSON}
    return next((kind for kind, known in kinds.items() if column in known), None)
