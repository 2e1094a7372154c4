"""Disks that refuse: FAULTS B5.2."""

import asyncio
import sqlite3
import threading

import pytest

import pgqrs
from pgqrs.clock import DatabaseClock
from pgqrs.db.database import Kind
from pgqrs.db.drivers.sqlite import SQLiteDriver
from pgqrs.db.queries import Query

INSERT = Query("insert", "insert into t (x) values (:x)")


# -- B5.2: the disk does not confirm ---------------------------------------------------------------------


class Refusing:
    """A connection whose commits fail, each as the next of `codes` says; the transaction stays to be rolled back."""

    def __init__(self, connection, codes):
        self._connection = connection
        self._codes = codes

    def execute(self, sql, *args):
        if sql == "commit" and self._codes:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._codes.pop(0)
            raise error
        return self._connection.execute(sql, *args)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.fixture
async def db(tmp_path):
    driver = await SQLiteDriver.open(pgqrs.Config(f"sqlite:///{tmp_path / 'app.db'}"), DatabaseClock())
    await driver.execute(Query("create", "create table t (n integer primary key, x text)"))
    yield driver
    await driver.close()


async def errors_of(db, codes, *, together):
    """What the callers see whose units share a commit that fails so."""
    gate = threading.Event()

    async def first(unit):
        if not isinstance(unit.connection, Refusing):
            unit.connection = Refusing(unit.connection, codes)
        assert gate.wait(10)
        await unit.execute(INSERT, x="first")

    units = [asyncio.create_task(db.perform(first, kind=Kind.UNIT, idempotent=False))]
    await asyncio.sleep(0)
    units += [asyncio.create_task(db.execute(INSERT, x=str(n))) for n in range(together - 1)]
    await asyncio.sleep(0)
    gate.set()
    return await asyncio.gather(*units, return_exceptions=True)


async def test_b5_2_a_commit_that_the_disk_did_not_confirm_is_ambiguous(db):
    [error] = await errors_of(db, [sqlite3.SQLITE_IOERR_FSYNC], together=1)

    assert isinstance(error, pgqrs.ConnectionFailed)
    assert error.ambiguous
    assert "may be written or not" in str(error)
    assert db.path in str(error)


async def test_b5_2_a_commit_that_was_not_written_says_so(db):
    [error] = await errors_of(db, [sqlite3.SQLITE_IOERR_WRITE], together=1)

    assert isinstance(error, pgqrs.ConnectionFailed)
    assert not error.ambiguous
    assert "nothing of this call was written" in str(error)


async def test_b5_2_the_doubt_of_a_shared_commit_stays_with_each_of_its_units(db):
    codes = [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_WRITE]
    one, other, after = await errors_of(db, codes, together=3)

    assert (one.ambiguous, other.ambiguous, after) == (True, True, 1)
