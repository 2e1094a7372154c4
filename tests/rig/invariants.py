"""What must hold of any database after any test."""

from __future__ import annotations

from collections.abc import Collection

import pgqrs
from pgqrs.db import migrations
from pgqrs.db.database import Database
from pgqrs.db.upkeep import invariants
from rig import guards
from rig.checking import looked_at


async def check_invariants(config: pgqrs.Config, *, broken: Collection[str] = ()) -> None:
    """Raises AssertionError naming what is broken, and where; but for the invariants that the test breaks itself."""
    await looked_at(config, lambda db: check_invariants_of(db, broken=broken))


async def check_invariants_of(db: Database, *, broken: Collection[str] = ()) -> None:
    """As `check_invariants`, on a database that is open."""
    if await migrations.version(db) != migrations.latest_version():
        return
    found = [str(each) for each in await invariants.check(db) if each.code not in broken]
    found += await guards.fired(db)
    assert not found, "\n".join(found)
