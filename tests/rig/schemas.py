"""Installed schemas for tests, used again: to empty one takes a tenth of the time of dropping it and installing another.

One whose tables, indexes, functions or statistics a test has changed is dropped.
"""

from __future__ import annotations

import atexit
import os
import secrets

import psycopg
from psycopg import sql

from rig.emptying import emptied

_MIGRATIONS = "pgqrs_migrations"
# What installing made: the same for a schema as long as nobody has changed it. TRUNCATE writes to pg_class alone, so
# that everything else is known by who wrote it last.
_LOOKS = """
with here as (select oid, relname, reloptions, relacl from pg_class where relnamespace = %(schema)s::regnamespace)
select (select string_agg(relname || coalesce(reloptions::text, '') || coalesce(relacl::text, ''), ',' order by relname)
        from here),
    (select array[max(a.xmin::text::bigint), count(*)] from pg_attribute as a join here on here.oid = a.attrelid),
    (select array[max(i.xmin::text::bigint), count(*)] from pg_index as i join here on here.oid = i.indexrelid),
    (select array[max(t.xmin::text::bigint), count(*)] from pg_trigger as t join here on here.oid = t.tgrelid),
    (select array[max(c.xmin::text::bigint), count(*)] from pg_constraint as c
        where c.connamespace = %(schema)s::regnamespace),
    (select array[max(p.xmin::text::bigint), count(*)] from pg_proc as p where p.pronamespace = %(schema)s::regnamespace),
    (select count(*) from pg_statistic as s join here on here.oid = s.starelid),
    (select array[n.nspacl::text, n.nspowner::text] from pg_namespace as n where n.oid = %(schema)s::regnamespace)
"""


class Schemas:
    """Of one process."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._process = os.getpid()
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._clean: list[str] = []
        # What each looked like when it had been installed.
        self._looks: dict[str, tuple[object, ...]] = {}

    def name(self) -> str:
        """One that is installed and empty, or one that is not there yet."""
        return self._clean.pop() if self._clean else f"t_{secrets.token_hex(8)}"

    def installed(self, schema: str) -> None:
        """To be said when nobody has touched it yet."""
        if schema not in self._looks and (looks := self._look(schema)) is not None:
            self._looks[schema] = looks

    def is_installed(self, schema: str) -> bool:
        """Whether it was given back clean: `name` gives those out again."""
        return schema in self._looks

    def give_back(self, schema: str) -> None:
        looks = self._looks.get(schema)
        if looks is None or self._look(schema) != looks:
            self._looks.pop(schema, None)
            self._run(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema)))
            return
        self._connected().execute(emptied(schema))
        self._clean.append(schema)

    def _look(self, schema: str) -> tuple[object, ...] | None:
        if not self._ask("select 1 from pg_namespace where nspname = %(schema)s", schema):
            return None
        [row] = self._ask(_LOOKS, schema)
        done = sql.SQL("select version, name from {} order by version").format(sql.Identifier(schema, _MIGRATIONS))
        there = self._ask("select to_regclass(quote_ident(%(schema)s) || '.pgqrs_migrations')", schema)[0][0]
        return None if there is None else (*row, *self._connected().execute(done).fetchall())

    def _ask(self, question: str, schema: str) -> list[tuple[object, ...]]:
        return self._connected().execute(question, {"schema": schema}).fetchall()

    def _run(self, statement: sql.Composable) -> None:
        self._connected().execute(statement)

    def _connected(self) -> psycopg.Connection[tuple[object, ...]]:
        # Not one that another process has: a test may have forked.
        if self._connection is None or self._connection.closed or self._process != os.getpid():
            self._connection = psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None)
            atexit.register(self._connection.close)
            self._process = os.getpid()
        return self._connection
