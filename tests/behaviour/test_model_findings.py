"""What the walks of proof/model found, each as its shortest case."""

import pgqrs
from pgqrs.db.runs import claims, settlement
from pgqrs.db.runs.records import Ended, RunWrite, Suspended
from pgqrs.db.tables import messages, workers
from pgqrs.db.tables.messages import Source
from pgqrs.types import RunStatus


async def claimed(store, *names, batch=1):
    """(run ids, claims) of one worker that asks the workflows in that order."""
    worker_id = await workers.register(store.database, queue_id=None, name="w", port=0, info={})
    sources = [Source((await store.workflow(name)).queue_id, 10) for name in names]
    return await claims.claim(store.database, sources, worker_id=worker_id, batch=batch)


async def test_of_one_priority_the_queue_that_is_asked_first_gives_first(store):
    await store.create_workflow("flow")
    await store.create_workflow("other")
    first = pgqrs.workflow("flow")
    urgent = await first.trigger(priority=1).execute(store)
    usual = await first.trigger().execute(store)
    await pgqrs.workflow("other").trigger_many([1, 2, 3]).execute(store)

    found = await claimed(store, "flow", "other", batch=2)

    assert [each.run_id for each in found] == [urgent, usual]


async def test_a_run_that_is_due_keeps_its_turn_when_it_is_woken(store, flow, clock):
    older = await flow.trigger().execute(store)
    clock.advance(10)
    younger = await flow.trigger().execute(store)
    clock.advance(10)

    await flow.resume(older, store)

    assert [each.run_id for each in await claimed(store, "flow", batch=2)] == [older, younger]


async def test_a_run_that_is_due_keeps_its_turn_when_it_is_signalled(store, flow, clock):
    older = await flow.trigger().execute(store)
    [held] = await claimed(store, "flow")
    await settlement.commit(
        store.database, [RunWrite(held.fence, (), Suspended(RunStatus.PAUSED, delay=5, waiting_for="sleep"))]
    )
    clock.advance(10)
    younger = await flow.trigger().execute(store)
    clock.advance(10)

    await flow.signal(older, store, "go")

    assert [each.run_id for each in await claimed(store, "flow", batch=2)] == [older, younger]


async def test_what_is_done_after_its_lease_ran_out_is_not_leased_again(store, clock):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many(["done", "next"])
    consumer = await store.consumer("tasks")
    [late] = await consumer.dequeue(lease_seconds=10)
    clock.advance(10)

    # Nobody has taken it meanwhile: it is still this consumer's to archive.
    turn = await messages.settle_and_lease(
        store.database,
        Source(consumer._holder.queue_id, 10),
        worker_id=consumer.worker_id,
        batch=2,
        done=[(late.id, late.lease_token)],
    )

    assert (turn.lost, [lease.payload for lease in turn.leases]) == (0, ['"next"'])
    metrics = await pgqrs.admin(store).queue_metrics("tasks")
    assert (metrics.leased, metrics.ready, metrics.archived) == (1, 0, 1)


async def test_a_stale_write_tells_nothing_beside_one_that_holds(store, flow, clock):
    run_id = await flow.trigger().execute(store)
    [stale] = await claimed(store, "flow")
    clock.advance(10)
    [held] = await claimed(store, "flow")
    failed = Ended(RunStatus.ERROR, error='{"type": "Oops"}', last_error="Oops")
    succeeded = Ended(RunStatus.SUCCESS, output="1")

    # As when one worker lost its run and took it again.
    done = await settlement.commit(
        store.database, [RunWrite(stale.fence, (), failed), RunWrite(held.fence, (), succeeded)]
    )

    assert done == {held.fence}
    assert [event.event_type for event in await flow.events(run_id, store)] == ["created", "lease_lost", "succeeded"]
