"""What must hold of any database after any test."""

from __future__ import annotations

from collections.abc import Collection

import pgqrs
from pgqrs.clock import DatabaseClock
from pgqrs.db import invariants, migrations
from pgqrs.db.drivers import open_driver
from rig import guards


async def check_invariants(config: pgqrs.Config, *, broken: Collection[str] = ()) -> None:
    """Raises AssertionError naming what is broken, and where; but for the invariants that the test breaks itself."""
    db = await open_driver(config, DatabaseClock())
    try:
        if await migrations.version(db) != migrations.latest_version():
            return
        found = [str(each) for each in await invariants.check(db) if each.code not in broken]
        found += await guards.fired(db)
    finally:
        await db.close()
    assert not found, "\n".join(found)
