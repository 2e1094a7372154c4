"""From a SQLite or Turso file to PostgreSQL: every row of every table, verified, in one transaction.

    target                                          source
    ----------------------------------------------  ---------------------------------------------------
    begin; lock the tables; they must be empty
                                                    begin: from here on nobody else can write
    insert, a batch at a time                       read, a batch at a time
    read back; count and checksum must agree
    leases void, sequences set, origin written
                                                    sealed (sealing.py); commit
    commit

Killed before the last but one line, nothing has happened on either side. Killed between the two commits the file is
sealed and the target empty: the rows are read out of the sealed file the next time. After the second, the origin on
the target says that this promotion is done. At no time can both be worked on.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from pgqrs.audit import EventType
from pgqrs.db import migrations
from pgqrs.db.database import Database, IntegrityViolation, Kind, Row, store_call
from pgqrs.db.drivers.sqlite.driver import SQLiteDriver
from pgqrs.db.drivers.sqlite.exclusive import ExclusiveSession, frozen
from pgqrs.db.queries import TABLES, Query, load
from pgqrs.db.runs.history import RunEvent, facts, record_events
from pgqrs.db.upkeep import promotion_seal, unreadable_rows
from pgqrs.db.upkeep.promotion_seal import Seal
from pgqrs.db.upkeep.unreadable_rows import Unreadable
from pgqrs.errors import InvalidTransition, PgqrsError
from pgqrs.reports import PromotionReport, TableCopy

_SQL = load(__package__, "promotion")

# A batch: what one statement takes in well under a second, and what one process has in memory at once.
_MOST_ROWS = 1_000
_MOST_BYTES = 4 * 1024 * 1024

# In this order a row comes after those that it refers to. The history of migrations is the target's own.
COPIED = tuple(table for table in TABLES if table != "pgqrs_migrations")
# The types that our columns have on PostgreSQL, as `{rows}` calls them.
_KINDS = {
    "bigint": "id",
    "integer": "int",
    "json": "json",
    "text": "text",
    "timestamp with time zone": "time",
    "double precision": "seconds",
}

# A table, how many rows of it are there, how many there will be.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the schema, with the kind of each of its columns."""

    name: str
    columns: tuple[tuple[str, str], ...]
    # The one that is numbered by the database.
    id_column: str | None

    def query(self, name: str, *, over: str | None = None) -> Query:
        """One of our texts with this table's names in it; `over` is another name of the table."""
        plain = [column for column, _ in self.columns]
        read_back = [f"{{text {column}}}" if kind == "json" else column for column, kind in self.columns]
        text = _SQL[name].text
        for stands, for_what in {
            "its_columns": ", ".join(read_back if name == "look_back" else plain),
            "their_columns": ", ".join(f"given.{column}" for column in plain),
            "with_types": ", ".join(f"{column} {kind}" for column, kind in self.columns),
            "a_cursor": f"copied_{self.name}",
            "a_table": over or self.name,
        }.items():
            text = text.replace(stands, for_what)
        return Query(name, text)


@dataclass(slots=True)
class Digest:
    """Count, size and checksum of rows, in whatever order they come."""

    rows: int = 0
    bytes: int = 0
    total: int = 0

    def add(self, rows: Sequence[Row]) -> None:
        self.rows += len(rows)
        for row in rows:
            # Text, whole numbers, floats, times and None: each is told exactly, and apart from all others.
            text = repr(tuple(row)).encode()
            self.bytes += len(text)
            self.total = (self.total + int.from_bytes(blake2b(text, digest_size=16).digest())) % 2**128

    @property
    def checksum(self) -> str:
        return f"{self.total:032x}"

    def of(self, table: str) -> TableCopy:
        return TableCopy(table, self.rows, self.bytes, self.checksum)


@store_call(Kind.UNIT, idempotent=True)
async def promote(db: Database, source: SQLiteDriver, report: PromotionReport, progress: Progress) -> PromotionReport:
    """Copies what the source holds to `db`, a PostgreSQL; see above. May be called again, whatever became of it.

    It waits for the source while its own transaction is open, which other store calls must not do: only PostgreSQL's
    driver lets it.
    """
    tables = await _tables(db)
    for table in tables:
        await db.execute(table.query("lock_table"))
    async with frozen(source) as file:
        seal = await promotion_seal.find(file)
        if seal is not None and seal.promotion == await _origin(db):
            return replace(report, promotion=seal.promotion, already_done=True)
        if seal is not None and (seal.to, seal.schema) != (report.target, report.schema):
            raise seal.error(report.source)
        await _refuse_what_is_in_use(db, tables, report)
        is_sealed = seal is not None
        if seal is None:
            _refuse_unreadable(await unreadable_rows.unreadable(file, whole=True))
            [[now]] = await file.fetch(_SQL["moment"])
            seal = Seal(str(uuid.uuid4()), report.target, report.schema, now)
        copied = tuple([await _copy(db, file, table, sealed=is_sealed, progress=progress) for table in tables])
        await _set_last_ids(db, file, tables)
        handed_back = await _void_leases(db, file, seal, sealed=is_sealed)
        await db.execute(_SQL["write_origin"], promotion=seal.promotion)
        if not is_sealed:
            await promotion_seal.seal(file, seal, COPIED)
        await file.commit()
    return replace(report, promotion=seal.promotion, tables=copied, handed_back=handed_back)


async def plan(source: SQLiteDriver, report: PromotionReport, progress: Progress) -> PromotionReport:
    """What `promote` would copy: reads all of the source, which others go on with meanwhile, and writes nothing."""
    columns: dict[str, list[tuple[str, str]]] = {}
    for of_table, column in sorted((await migrations.shape(source)).columns):
        columns.setdefault(of_table, []).append((column, ""))
    copied = []
    async with frozen(source, writes=False) as file:
        _refuse_unreadable(await unreadable_rows.unreadable(file, whole=True))
        for name in COPIED:
            digest = Digest()
            table = Table(name, tuple(columns[name]), None)
            async for rows in _read(file, table, digest, sealed=False, progress=progress):
                del rows
            copied.append(digest.of(name))
    return replace(report, tables=tuple(copied))


@store_call(Kind.READ, idempotent=True)
async def check_target(db: Database, report: PromotionReport) -> None:
    """Raises InvalidTransition for one that is in use."""
    await _refuse_what_is_in_use(db, await _tables(db), report)


async def _tables(db: Database) -> list[Table]:
    """Those to be copied, as the target has them."""
    columns: dict[str, list[tuple[str, str]]] = {}
    ids: dict[str, str] = {}
    for table, column, kind, is_id in await db.fetch(_SQL["column_types"], schema=db.dialect.schema):
        columns.setdefault(table, []).append((column, _KINDS[kind] if table in COPIED else kind))
        if is_id:
            ids[table] = column
    return [Table(name, tuple(columns[name]), ids.get(name)) for name in COPIED]


async def _origin(db: Database) -> str | None:
    rows = await db.fetch(_SQL["find_origin"])
    return str(rows[0][0]) if rows else None


async def _refuse_what_is_in_use(db: Database, tables: Sequence[Table], report: PromotionReport) -> None:
    for table in tables:
        if (await db.fetch(table.query("has_rows")))[0][0]:
            raise InvalidTransition(
                f"schema {report.schema!r} of {report.target} is in use: {table.name} has rows",
                hint="promote into an empty schema",
            )


def _refuse_unreadable(found: Sequence[Unreadable]) -> None:
    """PostgreSQL could not hold them as they are; what they should be, a person has to say."""
    if found:
        more = f" and {len(found) - 1} more columns" if len(found) > 1 else ""
        raise InvalidTransition(
            f"rows of the source cannot be read: {found[0]}{more}; nothing was copied",
            hint=f"`pgqrs doctor --verify` names them; in SQL, and again until none is left: {found[0].fix}",
        )


# -- rows ----------------------------------------------------------------------------------------------------


async def _copy(db: Database, file: ExclusiveSession, table: Table, *, sealed: bool, progress: Progress) -> TableCopy:
    """All rows of a table, and a look whether they have arrived as they were."""
    insert = table.query("insert_rows")
    sent = Digest()
    async for rows in _read(file, table, sent, sealed=sealed, progress=progress):
        try:
            await db.execute(insert, given=rows)
        except Exception as error:
            if isinstance(error, IntegrityViolation) or str(getattr(error, "sqlstate", "")).startswith("22"):
                raise PgqrsError(
                    f"PostgreSQL does not take rows {sent.rows - len(rows) + 1:,} to {sent.rows:,} of {table.name}: "
                    f"{error}; nothing was copied, and the source is as it was"
                ) from error
            raise
    found = await _look_back(db, table, sent)
    if (sent.rows, sent.total) != (found.rows, found.total):
        raise PgqrsError(
            f"{table.name} did not arrive as it was: {sent.rows:,} rows with checksum {sent.checksum} were sent, "
            f"{found.rows:,} with {found.checksum} are there; nothing was copied, and the source is as it was"
        )
    if sent.rows:
        await db.execute(table.query("analyze_table"))
    return sent.of(table.name)


async def _read(
    file: ExclusiveSession, table: Table, digest: Digest, *, sealed: bool, progress: Progress
) -> AsyncIterator[list[Row]]:
    over = promotion_seal.PREFIX + table.name if sealed else table.name
    total = int((await file.fetch(table.query("count_rows", over=over)))[0][0])
    progress(table.name, 0, total)
    async for rows in file.batches(table.query("read_table", over=over), rows=_MOST_ROWS, size=_MOST_BYTES):
        digest.add(rows)
        yield rows
        progress(table.name, digest.rows, total)


async def _look_back(db: Database, table: Table, sent: Digest) -> Digest:
    found = Digest()
    # As many at a time as were about a batch on the way there.
    how_many = max(1, min(_MOST_ROWS, _MOST_BYTES * sent.rows // max(1, sent.bytes)))
    some = table.query("next_copied")
    more = Query(some.name, some.text.replace("how_many", str(how_many)))
    await db.execute(table.query("look_back"))
    while rows := await db.fetch(more):
        found.add(rows)
    await db.execute(table.query("end_look"))
    return found


# -- what is not a row ---------------------------------------------------------------------------------------


async def _set_last_ids(db: Database, file: ExclusiveSession, tables: Sequence[Table]) -> None:
    last = {
        str(name).removeprefix(promotion_seal.PREFIX): int(seq) for name, seq in await file.fetch(_SQL["last_ids"])
    }
    for table in tables:
        if table.id_column is not None and last.get(table.name):
            name = db.dialect.table(table.name)
            await db.fetch(_SQL["set_last_id"], of_table=name, of_column=table.id_column, last_id=last[table.name])


async def _void_leases(db: Database, file: ExclusiveSession, seal: Seal, *, sealed: bool) -> int:
    """Nobody holds anything on the target. How many were held on the source."""
    query = _SQL["held_messages"]
    if sealed:
        query = Query(query.name, query.text.replace("pgqrs_messages", f"{promotion_seal.PREFIX}pgqrs_messages"))
    held = await file.fetch(query, frozen_at=seal.frozen_at)
    for some in _batched(held):
        given = [(message_id, max(0.0, left)) for message_id, _, left in some]
        await db.execute(_SQL["hand_back_messages"], given=given)
        run_ids = [run_id for _, run_id, _ in some if run_id is not None]
        await db.execute(_SQL["hand_back_runs"], given=[(run_id,) for run_id in run_ids])
        why = facts(reason="promoted")
        await record_events(db, [RunEvent(run_id, EventType.HANDED_BACK, why) for run_id in run_ids])
    await db.execute(_SQL["sign_off_workers"])
    return len(held)


def _batched(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for first in range(0, len(rows), _MOST_ROWS):
        yield rows[first : first + _MOST_ROWS]
