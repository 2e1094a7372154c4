"""A backup is restored: runs continue from there, and holders of later leases are fenced."""

import asyncio

import pytest

import pgqrs
from rig import backups


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
