"""Long work says how far it is."""

import pgqrs

flow = pgqrs.workflow("flow")


async def test_a_bulk_verb_tells_of_each_run(store):
    await store.create_workflow("flow")
    await flow.trigger_many([None] * 3).execute(store)
    admin = pgqrs.admin(store)
    told = []

    await admin.cancel_runs(workflow="flow", on_progress=told.append)
    assert told == []
    await admin.cancel_runs(workflow="flow", dry_run=False, on_progress=told.append)
    assert told == [1, 1, 1]
    await admin.restart_runs(workflow="flow", status="cancelled", dry_run=False, on_progress=told.append)
    await admin.delete_runs(workflow="flow", status="pending", dry_run=False, on_progress=told.append)

    assert told == [1] * 9


async def test_purge_and_replay_tell_how_many_more(store):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many(range(4))
    admin = pgqrs.admin(store)
    told = []

    async def fails(number: int):
        if number:
            raise pgqrs.PermanentError("no")

    async with await store.consumer("tasks") as consumer:
        await consumer.process(fails, until_idle=True)
    assert await admin.replay("tasks", on_progress=told.append) == 3
    assert await admin.purge("tasks", on_progress=told.append) == 3

    assert told == [3, 3]


async def test_retention_tells_how_many_more(store, clock):
    await store.create_workflow("flow")
    await flow.trigger_many([None] * 2).execute(store)
    await pgqrs.admin(store).cancel_runs(workflow="flow", dry_run=False)
    await pgqrs.retention(store).keep("runs", days=1)
    clock.advance(days=2)
    told = []

    report = await pgqrs.retention(store).apply(gently=False, on_progress=told.append)

    assert sum(told) == report.total == 2
