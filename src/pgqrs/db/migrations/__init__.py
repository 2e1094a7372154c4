"""The schema's versions: what is applied, what is missing, and putting it there.

Files are `NNNN_name.sql`, one text for every database; `NNNN_name.postgres.sql` beside it holds what only PostgreSQL
gets, after the common text. All that is missing is applied in one transaction, so a kill at any statement leaves
either the old schema or the new one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.dialect import Dialect
from pgqrs.db.queries import Query, load
from pgqrs.db.upkeep import promotion_seal
from pgqrs.errors import SchemaMismatch, SchemaNotInstalled
from pgqrs.text.shell import command

_SQL = load(__package__, "history")
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    statements: tuple[Query, ...]
    postgres_statements: tuple[Query, ...]

    def for_dialect(self, dialect: Dialect) -> tuple[Query, ...]:
        return self.statements + (self.postgres_statements if dialect.is_postgres else ())


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """What a schema consists of, by name: comparable between databases."""

    columns: frozenset[tuple[str, str]]
    indexes: frozenset[str]

    def missing_from(self, found: SchemaShape) -> list[str]:
        columns = sorted(f"column {table}.{column}" for table, column in self.columns - found.columns)
        return columns + sorted(f"index {name}" for name in self.indexes - found.indexes)


@cache
def all_migrations() -> tuple[Migration, ...]:
    folder = resources.files(__package__)
    found = []
    for file in folder.iterdir():
        match = _FILE.fullmatch(file.name)
        if match is None:
            continue
        name = match.group(2)
        special = folder.joinpath(f"{match.group(1)}_{name}.postgres.sql")
        found.append(
            Migration(
                int(match.group(1)),
                name,
                _statements(name, file.read_text(encoding="utf-8")),
                _statements(name, special.read_text(encoding="utf-8")) if special.is_file() else (),
            )
        )
    return tuple(sorted(found, key=lambda migration: migration.version))


def latest_version() -> int:
    return all_migrations()[-1].version


def _statements(name: str, text: str) -> tuple[Query, ...]:
    # A semicolon ends a statement at the end of a line; function bodies have theirs between $$ and $$.
    parts: list[str] = []
    for piece in re.split(r"(\$\$.*?\$\$)", text, flags=re.DOTALL):
        if piece.startswith("$$"):
            parts[-1] += piece
            continue
        first, *rest = re.split(r";[ \t]*$", piece, flags=re.MULTILINE)
        parts = [*parts[:-1], (parts[-1] if parts else "") + first, *rest]
    bodies = [part for part in parts if re.sub(r"--[^\n]*", "", part).strip()]
    return tuple(Query(f"{name}_{i}", body) for i, body in enumerate(bodies, 1))


@store_call(Kind.READ, idempotent=True)
async def version(db: Database) -> int:
    """The version that is installed; 0 for none."""
    return await _applied_version(db)


@store_call(Kind.UNIT, idempotent=True)
async def install(db: Database, *, up_to: int | None = None) -> int:
    """Apply what is missing; returns the version that is then installed. Safe in many processes at once."""
    schema = db.dialect.schema
    if schema is not None:
        await db.fetch(_SQL["lock_migrations"], schema=schema)
    if await _applied_version(db) == 0:
        await _refuse_others(db)
    if schema is not None and not (await db.fetch(_SQL["schema_exists"], schema=schema))[0][0]:
        # The name has been validated: it can hold no quote.
        await db.execute(Query("create_schema", f'create schema "{schema}"'))
    # Asked anew under the lock: somebody may have installed while we waited for it.
    await db.execute(_SQL["create_history"])
    installed = int((await db.fetch(_SQL["applied_version"]))[0][0])
    _refuse_newer(installed)
    for migration in all_migrations():
        if not installed < migration.version <= (up_to or latest_version()):
            continue
        for statement in migration.for_dialect(db.dialect):
            await db.execute(statement)
        await db.execute(_SQL["record_migration"], version=migration.version, name=migration.name)
        installed = migration.version
    return installed


async def check(db: Database, *, where: str = "this database") -> None:
    """Refuse, with the way out, a database whose schema this code cannot work with."""
    found = await version(db)
    if found and not db.dialect.is_postgres and (seal := await _seal(db)):
        raise seal.error(where)
    if found == 0:
        await _check_others(db)
        schema = db.dialect.schema or "public"
        install = command("install", **({} if schema == "public" else {"schema": schema}))
        raise SchemaNotInstalled(
            f"the pgqrs tables are not in schema {schema!r} of {where}",
            hint=f"run `PGQRS_DSN=... {install}` for it, or connect with install=True",
        )
    _refuse_newer(found)
    if found < latest_version():
        raise SchemaMismatch(
            f"the schema has version {found}, this code needs {latest_version()}",
            hint="run `pgqrs install`",
            found=found,
            expected=latest_version(),
        )


@store_call(Kind.READ, idempotent=True)
async def _seal(db: Database) -> promotion_seal.Seal | None:
    return await promotion_seal.find(db)


@store_call(Kind.READ, idempotent=True)
async def _check_others(db: Database) -> None:
    await _refuse_others(db)


async def _refuse_others(db: Database) -> None:
    """Where no version is installed, a table pgqrs_queues without our column was made by another program.

    With our column it is ours, and its history is lost: what the database says of it is the cause.
    """
    columns = {column for table, column in await _columns(db) if table == "pgqrs_queues"}
    if not columns or "queue_id" in columns:
        return
    if db.dialect.schema is None:
        where, way_out = "this file", "use another file: PGQRS_DSN=..."
    else:
        where = f"schema {db.dialect.schema!r}"
        way_out = "use another schema for `pgqrs install`, workers and clients: PGQRS_SCHEMA=...; or another database"
    raise SchemaMismatch(
        f"{where} holds another program's table pgqrs_queues (the distribution `pgqrs` of the package index uses the "
        "names of our tables)",
        hint=f"{way_out}",
        found=0,
        expected=latest_version(),
    )


def _refuse_newer(found: int) -> None:
    if found > latest_version():
        raise SchemaMismatch(
            f"the schema has version {found}, newer than the {latest_version()} that this code knows",
            hint="upgrade pgqrs here, or use another schema",
            found=found,
            expected=latest_version(),
        )


@store_call(Kind.READ, idempotent=True)
async def shape(db: Database) -> SchemaShape:
    """The columns and indexes that are there now."""
    indexes = await db.fetch(_SQL["indexes"], **_schema_argument(db))
    return SchemaShape(frozenset(await _columns(db)), frozenset(name for (name,) in indexes))


async def _columns(db: Database) -> list[tuple[str, str]]:
    return [(table, column) for table, column in await db.fetch(_SQL["columns"], **_schema_argument(db))]


async def _applied_version(db: Database) -> int:
    if not await _history_exists(db):
        return 0
    return int((await db.fetch(_SQL["applied_version"]))[0][0])


async def _history_exists(db: Database) -> bool:
    return bool((await db.fetch(_SQL["history_exists"], **_schema_argument(db)))[0][0])


def _schema_argument(db: Database) -> dict[str, Any]:
    return {"schema": db.dialect.schema} if db.dialect.schema else {}


def script(dialect: Dialect) -> str:
    """The whole schema as SQL that a person can read and run."""
    statements = [_SQL["create_history"]]
    for migration in all_migrations():
        statements += migration.for_dialect(dialect)
    return ";\n\n".join(s.compiled(dialect, "named").sql for s in statements) + ";\n"
