"""Schemas of other versions, and of other applications."""

import asyncio

import pytest

import pgqrs
from pgqrs.db import migrations
from pgqrs.db.drivers import open_driver


@pytest.mark.row("B10.3", "B10.6")
async def test_code_on_an_older_schema_refuses_before_it_touches_anything(config, connect, clock):
    db = await open_driver(config, clock)
    older = migrations.latest_version() - 1
    await migrations.install(db, up_to=older)
    store = await connect(install=False)
    refused = None
    try:
        await store.create_queue("tasks")
    except pgqrs.PgqrsError as error:
        refused = error
    found = await migrations.version(db)
    await db.close()

    if refused is not None:
        assert isinstance(refused, pgqrs.SchemaMismatch)
        assert found == older
    else:
        # On SQLite whoever opens the file brings it up to date: there is nobody else to do it.
        assert (config.backend != "postgres", found) == (True, migrations.latest_version())


@pytest.mark.row("B10.8")
async def test_two_schemas_in_one_database_do_not_hear_of_each_other(config, connect, clock):
    here = await connect(clock=pgqrs.DatabaseClock())
    there_config = config.with_changes(schema=f"{config.schema}_b"[:40])
    there = await pgqrs.connect_with(there_config, install=True)
    heard = []
    for store in (here, there):
        await store.create_queue("tasks")
    consumer = await here.consumer("tasks")
    listening = asyncio.Event()
    here.database.hints.watchers.append(lambda topics: (listening.set(), heard.append(topics)))
    waiting = asyncio.create_task(consumer.dequeue(wait_seconds=1))
    if config.backend == "postgres":
        # It listens: that is told by one hint to everybody.
        await asyncio.wait_for(listening.wait(), 20)
        heard.clear()
    await (await there.producer("tasks")).enqueue("for there")
    got = await waiting
    metrics = await pgqrs.admin(there).queue_metrics("tasks")
    await there.close()
    if config.backend == "postgres":
        import asyncpg

        connection = await asyncpg.connect(config.dsn)
        await connection.execute(f'drop schema "{there_config.schema}" cascade')
        await connection.close()

    assert got == []
    assert metrics.ready == 1
    assert heard == []
