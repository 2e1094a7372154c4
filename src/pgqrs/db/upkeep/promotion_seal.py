"""What becomes of a file that was promoted: all who had it open fail from then on, and are told where to go.

Its tables get other names, in the transaction of the mark that says where their rows are now. No process has to know
of that in advance, whatever it does and on whose connection: its next statement finds no table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from pgqrs.db.database import Database
from pgqrs.db.queries import Query, load
from pgqrs.errors import StorePromoted
from pgqrs.serialization import decode, encode

_SQL = load(__package__, "promotion_seal")
FIND = _SQL["find_seal"]
# What the names of a sealed file's tables begin with.
PREFIX = "promoted_"


@dataclass(frozen=True, slots=True)
class Seal:
    """Where the rows of a sealed file are now. `promotion` is the id that the target has on record, too."""

    promotion: str
    to: str
    schema: str
    # From when on nobody could write to the file.
    frozen_at: datetime

    @classmethod
    def read(cls, text: str) -> Seal:
        found: Seal = decode(text, cls)
        return found

    def error(self, where: str) -> StorePromoted:
        return StorePromoted(where, promoted_to=self.to, schema=self.schema)


def tells_of_no_table(error: BaseException) -> bool:
    """Whether it is what SQLite and Turso say of a table of ours that is not there; a seal may be why."""
    text = str(error)
    return "no such table" in text and "pgqrs_" in text


async def find(db: Database) -> Seal | None:
    """In a transaction; the seal of the file, if it has one."""
    rows = await db.fetch(FIND)
    return Seal.read(rows[0][0]) if rows else None


async def seal(db: Database, given: Seal, tables: Iterable[str]) -> None:
    """In a transaction: from its commit on nobody finds the tables."""
    for table in tables:
        text = _SQL["rename_table"].text.replace("another_table", PREFIX + table).replace("a_table", table)
        await db.execute(Query("rename_table", text))
    await db.execute(_SQL["write_seal"], seal=encode(asdict(given)))
