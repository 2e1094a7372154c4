"""A SQLite or Turso database grows up: all that is in it, also what is under way, goes to PostgreSQL."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pgqrs.clock import Clock, DatabaseClock
from pgqrs.config import Config
from pgqrs.db import migrations
from pgqrs.db.driver import Driver
from pgqrs.db.drivers import open_driver
from pgqrs.db.drivers.sqlite.driver import SQLiteDriver
from pgqrs.db.upkeep import promotion
from pgqrs.db.upkeep.promotion import Progress
from pgqrs.errors import ConfigError, ConnectionFailed, SchemaNotInstalled, StorePromoted
from pgqrs.reports import PromotionReport


async def promote(
    source: str | Config,
    target: str | Config,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> PromotionReport:
    """Copies everything from a SQLite or Turso file to an empty schema of PostgreSQL, and verifies it.

    When it returns, workers that are started on the target go on with every run; the source refuses everybody with
    StorePromoted. Raises InvalidTransition for a target that is in use; whatever it raises, the source is as it was,
    or a second call finishes what the first began. `progress` is called with a table, its rows so far and in all.
    """
    source, target = _config(source), _config(target)
    _check(source, target)
    clock = clock or DatabaseClock()
    file = await _opened(source, clock)
    try:
        db = await open_driver(target, clock)
        try:
            report = PromotionReport("", source.safe_dsn, target.safe_dsn, target.schema, dry_run, ())
            return await _carry_out(db, file, report, progress or _nobody_looks)
        finally:
            await db.close()
    finally:
        await file.close()


async def _carry_out(db: Driver, file: SQLiteDriver, report: PromotionReport, progress: Progress) -> PromotionReport:
    if not report.dry_run:
        await _check_source(file, report.source, may_be_sealed=True)
        await migrations.install(db)
        await migrations.check(db, where=report.target)
        return await promotion.promote(db, file, report, progress)
    await _check_source(file, report.source, may_be_sealed=False)
    if await migrations.version(db):
        await migrations.check(db, where=report.target)
        await promotion.check_target(db, report)
    return await promotion.plan(file, report, progress)


def _config(given: str | Config) -> Config:
    return given if isinstance(given, Config) else Config(given)


def _check(source: Config, target: Config) -> None:
    if source.backend == "postgres":
        raise ConfigError("the source is PostgreSQL already", hint="to move it use pg_dump, or a replica")
    if target.backend != "postgres":
        raise ConfigError(
            "the target must be PostgreSQL", hint="a file of SQLite can simply be copied while nobody uses it"
        )
    if source.path == ":memory:":
        raise ConfigError("a database in memory belongs to the process that has it", hint="name a file")
    if not Path(source.path).exists():
        # Connecting would make it.
        raise ConnectionFailed(f"there is no file {source.path!r}")


async def _opened(source: Config, clock: Clock) -> SQLiteDriver:
    file = await open_driver(source, clock)
    if isinstance(file, SQLiteDriver):
        return file
    raise TypeError(f"{source.backend} is no file")


async def _check_source(file: SQLiteDriver, where: str, *, may_be_sealed: bool) -> None:
    """The tables must be those that this code knows. One that is sealed may be: this may be the second try."""
    if await migrations.version(file) == 0:
        raise SchemaNotInstalled(f"there are no pgqrs tables in {where}", hint="is it the right file?")
    with suppress(*(StorePromoted,) if may_be_sealed else ()):
        await migrations.check(file, where=where)


def _nobody_looks(table: str, done: int, total: int) -> None:
    del table, done, total
