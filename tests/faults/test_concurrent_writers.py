"""Many processes and tasks at one file or database: none sees it locked, and nothing is lost or reordered."""

import asyncio
import logging
import os
import sqlite3

import pytest

import pgqrs
from pgqrs.db.database import Kind
from pgqrs.db.drivers.sqlite import file
from rig import forks


@pytest.mark.row("B5.4", "B5.5")
@pytest.mark.backends("sqlite")
async def test_processes_that_read_and_then_write_never_see_a_locked_file(live_store, config):
    """A transaction that begins by reading cannot become a writing one when another has written meanwhile."""
    await live_store.create_queue("tasks")

    async def count_up():
        store = await pgqrs.connect_with(config)
        producer = await store.producer("tasks")
        consumer = await store.consumer("tasks")
        for n in range(25):
            await producer.enqueue(n)
            await asyncio.gather(*(message.archive() for message in await consumer.dequeue(3)))
        await store.close()

    children = [forks.child(count_up) for _ in range(4)]

    assert [await forks.ended(each) for each in children] == [0] * 4
    metrics = await pgqrs.admin(live_store).queue_metrics("tasks")
    assert metrics.archived + metrics.ready == 100


@pytest.mark.row("B5.5")
@pytest.mark.backends("sqlite")
async def test_every_transaction_that_may_write_begins_as_a_writer(store):
    told = []

    async def listen(session):
        session.connection.set_trace_callback(told.append)

    await store.database.perform(listen, kind=Kind.UNIT, idempotent=True)
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue(1)

    begins = {text for text in told if text.lower().startswith("begin")}
    assert begins == {"begin immediate"}


@pytest.mark.row("B5.6")
@pytest.mark.backends("sqlite")
async def test_a_log_that_a_reader_keeps_from_being_emptied_is_warned_of_once_and_shrinks_afterwards(
    config, tmp_path, monkeypatch, caplog
):
    limit = 256 * 1024
    monkeypatch.setattr(file, "LARGEST_LOG_BYTES", limit)
    caplog.set_level(logging.WARNING)
    store = await pgqrs.connect_with(config)
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    log = tmp_path / "app.db-wal"
    reader = sqlite3.connect(config.path, isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from pgqrs_messages").fetchone()
    while log.stat().st_size < 20 * limit:
        await producer.enqueue("x" * 100_000)
    warnings = [record.getMessage() for record in caplog.records if "app.db-wal has" in record.getMessage()]
    reader.execute("rollback")
    reader.close()
    for _ in range(4):
        await producer.enqueue("x" * 100_000)
    shrunk = log.stat().st_size
    await store.close()

    assert len(warnings) == 1
    assert shrunk <= 2 * limit


@pytest.mark.row("B5.12")
@pytest.mark.backends("turso")
async def test_as_many_rows_are_there_as_were_inserted_side_by_side(store):
    count = 10_000 if os.environ.get("PGQRS_SOAK") else 400
    await store.create_queue("tasks")
    producers = [await store.producer("tasks") for _ in range(8)]

    async def produce(producer):
        return [await producer.enqueue(n) for n in range(count // 8)]

    ids = [each for many in await asyncio.gather(*map(produce, producers)) for each in many]

    assert len(set(ids)) == count
    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == count


@pytest.mark.row("B5.14")
async def test_messages_of_one_moment_come_out_in_the_order_they_went_in_on_every_database(store, clock):
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    # One microsecond apart, at the same time, and by numbers that sort otherwise as text.
    for n, priority in [(9, 2), (10, 10), (11, 2), (12, -1), (13, 2)]:
        await producer.enqueue(n, priority=priority)
        clock.advance(0.000001 if n == 10 else 0)

    assert [message.payload for message in await consumer.dequeue(10)] == [10, 9, 11, 13, 12]
