"""SQLite: whoever is told that a write is done can rely on it."""

import asyncio
import threading

import pytest

from pgqrs.db.database import Kind
from pgqrs.db.queries import Query

pytestmark = pytest.mark.backends("sqlite")


class HeldAtCommit:
    """A connection whose next commit waits until it may go on."""

    def __init__(self, connection):
        self._connection = connection
        self.reached, self.may_commit = threading.Event(), threading.Event()

    def execute(self, sql, *arguments):
        if sql == "commit":
            self.reached.set()
            self.may_commit.wait(30)
        return self._connection.execute(sql, *arguments)

    def __getattr__(self, name):
        return getattr(self._connection, name)


async def test_a_call_returns_only_when_it_has_committed(store):
    held = []

    async def work(unit):
        unit.connection = HeldAtCommit(unit.connection)
        held.append(unit.connection)
        await unit.execute(Query("write", "insert into pgqrs_queues (name, created_at) values ('q', 0)"))

    writing = asyncio.create_task(store.database.perform(work, kind=Kind.UNIT, idempotent=False))
    while not held:
        await asyncio.sleep(0.001)
    await asyncio.to_thread(held[0].reached.wait, 30)
    for _ in range(10):
        await asyncio.sleep(0)
    early = writing.done()
    held[0].may_commit.set()
    await writing

    assert not early
