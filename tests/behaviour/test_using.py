"""Enqueueing in the caller's own transaction, through the public API; tests/db/test_foreign.py has every library."""

import sqlite3
from contextlib import closing

import asyncpg
import psycopg
import pytest

import pgqrs


@pytest.fixture
async def ready(live_store):
    await live_store.create_queue("tasks")
    return live_store


async def payloads(store):
    async with await store.consumer("tasks") as consumer:
        return [m.payload for m in await consumer.dequeue(100)]


@pytest.mark.backends("sqlite")
async def test_a_message_follows_the_callers_sqlite_transaction(ready, config):
    with closing(sqlite3.connect(config.path)) as connection:
        pgqrs.using(connection).enqueue("tasks", "kept", priority=3)
        connection.commit()
        pgqrs.using(connection).enqueue_many("tasks", ["undone", "undone"])
        connection.rollback()

    assert await payloads(ready) == ["kept"]


@pytest.mark.backends("postgres")
async def test_a_message_follows_the_callers_asyncpg_transaction(ready, config):
    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    async with connection.transaction():
        await pgqrs.using(connection, schema=config.schema).enqueue("tasks", "kept")
    with pytest.raises(ZeroDivisionError):
        async with connection.transaction():
            await pgqrs.using(connection, schema=config.schema).enqueue("tasks", "undone")
            raise ZeroDivisionError
    await connection.close()

    assert await payloads(ready) == ["kept"]


@pytest.mark.backends("postgres")
async def test_a_plain_psycopg_connection_needs_no_await(ready, config):
    with psycopg.connect(config.dsn) as connection:
        ids = pgqrs.using(connection, schema=config.schema).enqueue_many("tasks", [1, 2])

    assert len(ids) == 2
    assert await payloads(ready) == [1, 2]


@pytest.mark.backends("sqlite")
async def test_bad_input_is_refused_as_everywhere(ready, config):
    with closing(sqlite3.connect(config.path)) as connection:
        tasks = pgqrs.using(connection)
        with pytest.raises(pgqrs.QueueNotFound, match="did you mean 'tasks'"):
            tasks.enqueue("task", 1)
        with pytest.raises(pgqrs.SerializationError):
            tasks.enqueue("tasks", {1, object()})
        with pytest.raises(pgqrs.ConfigError, match="priority"):
            tasks.enqueue("tasks", 1, priority="high")
        with pytest.raises(pgqrs.ConfigError, match="queue name"):
            tasks.enqueue("ta;sks", 1)
        assert tasks.enqueue_many("tasks", []) == []
        connection.commit()

    assert await payloads(ready) == []


def test_what_is_no_connection_is_refused():
    with pytest.raises(pgqrs.ConfigError, match=r"builtins\.str"):
        pgqrs.using("postgresql://localhost/db")


@pytest.mark.backends("sqlite", "postgres")
async def test_waiting_consumers_can_be_told_after_the_commit(ready, config):
    consumer = await ready.consumer("tasks")
    with ready.database.hints.subscribed([1]) as bell:
        bell.clear()
        await ready.wake("tasks")
        assert await bell.wait(5)
    await consumer.close()
