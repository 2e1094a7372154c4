"""B10: schemas of other versions, and of other applications."""

import asyncio

import pytest

import pgqrs
from pgqrs.db import migrations
from pgqrs.db.drivers import open_driver
from rig import backups


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


@pytest.mark.row("B10.7")
async def test_after_yesterdays_backup_runs_go_on_from_there(config, connect, clock, tmp_path):
    effects = []

    async def handler(ctx, number):
        await ctx.step("first", effect, ctx, "first", number)
        await ctx.wait_for("go")
        await ctx.step("second", effect, ctx, "second", number)

    async def effect(ctx, name, number):
        effects.append((number, name, ctx.idempotency_key))

    async def work(store):
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()

    flow = pgqrs.workflow("flow")
    store = await connect()
    await store.create_workflow("flow")
    waiting = await flow.trigger(1).execute(store)
    await work(store)
    await store.close()
    restore = await asyncio.to_thread(backups.take, config, tmp_path)

    clock.advance(3600)
    store = await connect()
    await flow.signal(waiting, store, "go")
    lost = await flow.trigger(2).execute(store)
    await work(store)
    await store.close()
    await asyncio.to_thread(restore)

    clock.advance(86400)
    store = await connect()
    assert (await flow.get_run(waiting, store)).status == "PAUSED"
    with pytest.raises(pgqrs.RunNotFound):
        await flow.get_run(lost, store)
    await flow.signal(waiting, store, "go")
    another = await flow.trigger(3).execute(store)
    await work(store)

    assert (await flow.get_run(waiting, store)).status == "SUCCESS"
    # What was on record is not done again; what was not is, under the same key.
    of_waiting = [(name, key) for number, name, key in effects if number == 1]
    assert [name for name, _ in of_waiting] == ["first", "second", "second"]
    assert len({key for _, key in of_waiting}) == 1
    # The number of the run that is lost is given away again; a receiver must not take the one for the other.
    assert another == lost
    keys = {number: key for number, _, key in effects}
    assert keys[2] != keys[3]


@pytest.mark.row("B10.7")
# Turso's file can only be copied when nobody has it open: then nobody holds anything.
@pytest.mark.backends("sqlite", "postgres")
async def test_who_holds_a_lease_that_the_backup_does_not_know_is_fenced(config, connect, tmp_path):
    store = await connect(clock=pgqrs.DatabaseClock())
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    await producer.enqueue("known to the backup")
    restore = await asyncio.to_thread(backups.take, config, tmp_path)
    await producer.enqueue("lost")
    taken = await (await store.consumer("tasks")).dequeue(2)
    await asyncio.to_thread(restore)

    # The number of the message that is lost is given away again.
    await producer.enqueue("another")
    again = await (await store.consumer("tasks")).dequeue(2)

    assert [each.id for each in again] == [each.id for each in taken]
    for each in taken:
        with pytest.raises(pgqrs.LeaseLost):
            await each.archive()
    for each in again:
        await each.archive()
