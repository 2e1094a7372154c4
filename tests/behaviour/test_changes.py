"""A look at what has changed: still while nothing happens, different whatever happens, however little is kept of it."""

import dataclasses

import pytest

import pgqrs
from pgqrs.db.views import changes

flow = pgqrs.workflow("flow")


@pytest.fixture(params=["none", "changes", "normal", "full"])
async def store(config, clock, request):
    """A store that keeps so much of the history."""
    kept = dataclasses.replace(config, audit=request.param, outbox="created")
    async with pgqrs.connect_with(kept, install=True, clock=clock) as store:
        await store.create_workflow("flow")
        await store.create_queue("tasks")
        yield store
    if config.backend == "postgres":
        from conftest import drop_schema

        await drop_schema(config)


async def _look(store, before=None):
    after_event = None if before is None else before.newest_event
    after_run = None if before is None else before.newest_run
    return await changes.pulse(store.database, after_event=after_event, after_run=after_run)


async def _changed(store, do):
    """The kinds that are different after that; looked at twice first, as nothing may change by itself."""
    before = await _look(store)
    still = await _look(store, before)
    assert (still.numbers, still.at_work, still.events, still.new_runs) == (before.numbers, before.at_work, [], [])
    await do
    after = await _look(store, before)
    return {kind for kind in after.numbers if after.numbers[kind] != before.numbers[kind]}


async def test_whatever_happens_to_a_run_is_seen(store, clock):
    assert {"run", "queue", "outbox"} <= await _changed(store, flow.trigger(None).execute(store))
    assert "run" in await _changed(store, flow.pause(1, store))
    assert "run" in await _changed(store, flow.resume(1, store))
    assert "run" in await _changed(store, flow.cancel(1, store))
    assert "run" in await _changed(store, flow.restart(1, store))
    clock.advance(1)
    assert "run" in await _changed(store, _run_all(store))


async def test_runs_that_come_and_end_between_two_looks_are_seen(store, clock):
    await flow.trigger_many(range(300)).execute(store)
    clock.advance(1)

    # The oldest is taken: none of the newest runs that have not ended is another than before.
    assert "run" in await _changed(store, _run_one(store))


async def test_steps_of_a_run_at_work_are_seen(store, clock):
    run_id = await flow.trigger(None).execute(store)
    seen = []

    async def steps(ctx):
        async def nothing():
            return None

        seen.append((await _look(store)).at_work)
        await ctx.step("one", nothing)
        await ctx.step("two", nothing)
        # Written down by now: a transaction of ours comes after the steps before it.
        await ctx.transaction("three", _nothing)
        seen.append((await _look(store)).at_work)
        await ctx.progress(1, 2, "half")
        seen.append((await _look(store)).at_work)

    await _work(store, steps)

    assert [list(each) for each in seen] == [[run_id]] * 3
    assert seen[0] != seen[1] != seen[2]


async def test_queues_workers_schedules_and_outbox_are_seen(store, clock):
    admin, schedules = pgqrs.admin(store), pgqrs.schedules(store)
    assert "queue" in await _changed(store, store.create_queue("more"))
    assert "queue" in await _changed(store, admin.pause_queue("tasks"))
    assert "queue" in await _changed(store, admin.resume_queue("tasks"))
    assert "queue" in await _changed(store, _enqueue(store))
    clock.advance(1)
    assert "queue" in await _changed(store, _archive(store))
    assert "worker" in await _changed(store, store.consumer("tasks"))
    assert "schedule" in await _changed(store, schedules.create("nightly", "flow", cron="30 2 * * *"))
    assert "schedule" in await _changed(store, schedules.pause("nightly"))
    await flow.trigger(None).execute(store)
    assert "outbox" in await _changed(store, pgqrs.dispatcher(store).to(lambda event: None).run_until_idle())


async def test_the_history_tells_which_runs_moved_where_it_is_kept(store):
    before = await _look(store)
    run_ids = await flow.trigger_many(range(3)).execute(store)
    await flow.pause(run_ids[1], store)

    after = await _look(store, before)

    assert list(after.new_runs) == run_ids
    told = {run_id for _, run_id in after.events}
    expected = {"none": set(), "changes": {run_ids[1]}, "normal": set(run_ids), "full": set(run_ids)}
    assert told == expected[store.config.audit]


async def test_too_much_at_once_is_not_told_one_by_one(store, monkeypatch):
    monkeypatch.setattr(changes, "MOST_EVENTS", 5)
    before = await _look(store)
    run_ids = await flow.trigger_many(range(5)).execute(store)
    for run_id in run_ids:
        await flow.pause(run_id, store)

    after = await _look(store, before)

    assert after.events == ([] if store.config.audit == "none" else None)


async def _nothing(transaction):
    return None


async def _work(store, handler):
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()


async def _run_all(store):
    async def handler(ctx):
        return None

    await _work(store, handler)


async def _run_one(store):
    """As a worker that is gone again before anybody looks: the run is ended, no worker of ours is left to be seen."""
    await flow.cancel(1, store)


async def _enqueue(store):
    await (await store.producer("tasks")).enqueue(1)


async def _archive(store):
    consumer = await store.consumer("tasks")
    [message] = await consumer.dequeue(1)
    await message.archive()
