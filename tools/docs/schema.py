"""docs/reference/schema.md: every table and column, found by running the migrations on an empty SQLite.

SQLite takes any word for a column's type, so the migrations are run with the tokens' own names (`time`, `json`) in place of
types, and the page shows what they are on each database.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import NamedTuple

from pgqrs.db import migrations
from pgqrs.db.queries import TABLES as TABLES_IN_ORDER
from tools.docs.meanings import COLUMNS, TABLES

HEAD = """# Schema

Every table, column and index of version {version}. (Made by `make docs-pages` from the migrations.) The tables are yours to read: they change only with a
migration, which the changelog tells. Write to them through the library (or `pgqrs_trigger`, below), not by hand.

`pgqrs schema sql` prints the SQL, `pgqrs schema verify` checks that all of it is there. On PostgreSQL the tables are in `Config.schema`
(`public`); there are no triggers, and one function.

| here | PostgreSQL | SQLite, Turso |
|---|---|---|
| id | `bigint`, identity, primary key | `integer primary key autoincrement` |
| ref | `bigint` | `integer` |
| json | `json`: the text is kept as it was written | `text` |
| time | `timestamptz` | `integer`, microseconds since 1970 in UTC |

"""

TAIL = """## `pgqrs_trigger` (PostgreSQL)

`pgqrs_trigger(workflow text, input json default 'null', options json default '{}') returns bigint` starts a run in the caller's transaction, from
psql, a database trigger or another language; it gives the run's id. `options` may hold `priority`, `delay` (seconds), `run_at`, `max_attempts`,
`attributes`, `idempotency_key`, and `"audit": "none"`.

```sql
select pgqrs_trigger('order', '{"sku": "A1"}', '{"idempotency_key": "order-7"}');
```
"""

# Types as they stand in the page. {hot} and {index} are about how, not what.
_TOKENS = {"id": "id primary key", "ref": "ref", "json": "json", "time": "time", "hot": ""}


class Column(NamedTuple):
    name: str
    kind: str
    nullable: bool


def page() -> str:
    parts = [HEAD.format(version=migrations.latest_version())]
    with closing(_database()) as database:
        for table in _tables(database):
            parts.append(
                f"## `{table}`\n\n{TABLES.get(table, '')}\n\n| column | type | null | |\n|---|---|---|---|\n"
            )
            for column in _columns(database, table):
                meaning = COLUMNS.get((table, column.name), COLUMNS.get(("", column.name), ""))
                parts.append(
                    f"| `{column.name}` | {column.kind} | {'yes' if column.nullable else ''} | {meaning} |\n"
                )
            parts.append(_indexes(database, table) + "\n")
    return "".join(parts) + TAIL


def undescribed() -> list[str]:
    """Tables and columns that have no words yet, and words that have no table or column."""
    with closing(_database()) as database:
        there = {(table, column.name) for table in _tables(database) for column in _columns(database, table)}
        missing = [f"{table}.{name}" for table, name in there if not {(table, name), ("", name)} & COLUMNS.keys()]
        missing += [table for table in _tables(database) if table not in TABLES]
    names = {name for _, name in there}
    left = [f"{t}.{c}" for t, c in COLUMNS if (t, c) not in there and not (t == "" and c in names)]
    return sorted(missing + left)


def _database() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    for statement in [
        migrations._SQL["create_history"],
        *(s for m in migrations.all_migrations() for s in m.statements),
    ]:
        text = re.sub(r"\{index (\w+)\}", r"\1", statement.text)
        database.execute(re.sub(r"\{(\w+)\}", lambda token: _TOKENS[token.group(1)], text))
    return database


def _tables(database: sqlite3.Connection) -> list[str]:
    found = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
    return [name for name in TABLES_IN_ORDER if name in found] + sorted(found - {*TABLES_IN_ORDER, "sqlite_sequence"})


def _columns(database: sqlite3.Connection, table: str) -> list[Column]:
    rows = database.execute(f"select name, type, \"notnull\", pk from pragma_table_info('{table}')")
    return [Column(name, kind.lower(), not notnull and not pk) for name, kind, notnull, pk in rows]


def _indexes(database: sqlite3.Connection, table: str) -> str:
    found = database.execute(
        "select name, sql from sqlite_master where type = 'index' and tbl_name = ? and sql is not null order by name",
        [table],
    )
    listed = [f"- `{name}`: {_columns_of(sql)}\n" for name, sql in found]
    return "\nIndexes:\n\n" + "".join(listed) if listed else ""


def _columns_of(sql: str) -> str:
    """The part of a `create index` that tells what it is for."""
    flat = " ".join(sql.split())
    unique = "unique, " if "create unique" in flat.lower() else ""
    return unique + "`" + flat.partition(" on ")[2].partition(" ")[2] + "`"
