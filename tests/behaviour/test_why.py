"""Why a run does not move: each cause, told by what is in the database."""

import asyncio

import pytest

import pgqrs
from pgqrs.db.runs import claims
from pgqrs.db.tables import workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.types import StepStatus
from rig.failures import Failures, result, step

flow = pgqrs.workflow("flow")


async def _worker(store, handler, *, name="w"):
    return await pgqrs.consumer(name, 0, "flow").handler(handler).create(store)


async def _executed(store, handler):
    """By a worker that is gone then; another one is there."""
    worker = await _worker(store, handler)
    await worker.run_until_idle()
    await worker.close()
    await _worker(store, handler)


async def _nothing(ctx):
    return None


@pytest.fixture
async def run(store):
    await store.create_workflow("flow")

    async def trigger(handler=None, **options):
        run_id = await flow.trigger(None, **options).execute(store)
        if handler is not None:
            await _executed(store, handler)
        return await flow.get_run(run_id, store)

    return trigger


async def _holding(store, handler):
    """A worker that is in the middle of a handler; and how to end that."""
    worker = await _worker(store, handler)
    return worker, asyncio.create_task(worker.poll_forever())


async def test_nobody_serves_the_workflow(store, run):
    await store.create_workflow("other")
    await pgqrs.consumer("w", 0, "other").handler(_nothing).create(store)

    why = await (await run()).why()

    assert (why.cause, why.sentence) == ("no_worker", "no worker serves 'flow'")
    assert why.evidence[0] == "workers serve other"
    assert "pgqrs worker run" in why.fix


async def test_workers_that_fell_silent(store, run, clock):
    await _worker(store, _nothing, name="gone")
    found = await run()
    clock.advance(3 * store.config.lease_seconds + 1)

    why = await found.why()

    assert why.cause == "workers_stale"
    assert "gone" in why.evidence[0]


async def test_workers_without_its_code(store, run):
    await store.create_workflow("flow.a")
    await pgqrs.worker("w", prefixes=["fl"]).workflows({"flow.a": _nothing}).create(store)

    why = await (await run()).why()

    assert why.cause == "no_handler"


async def test_a_paused_queue_comes_first(store, run):
    found = await run()
    [queue] = await pgqrs.admin(store).queues()
    await pgqrs.admin(store).pause_queue(queue)

    why = await found.why()

    assert why.cause == "queue_paused"
    assert why.fix == f"pgqrs queue resume {queue}"
    assert "also: no worker serves 'flow'" in why.evidence


async def test_scheduled_for_later(store, run, clock):
    await _worker(store, _nothing)

    why = await (await run(delay=200)).why()

    assert (why.cause, why.sentence) == ("scheduled", "it is to begin in 3 min 20 s")
    assert (why.until - clock.now()).total_seconds() == 200


async def test_ready_behind_others(store, run):
    await _worker(store, _nothing)
    for _ in range(3):
        found = await run()

    why = await found.why()

    assert (why.cause, why.sentence) == ("ready", "it is due, and waits for a free worker; 2 are taken before it")


async def test_backing_off_after_a_failure(store, run):
    async def failing(ctx):
        raise OSError("no route")

    why = await (await run(failing)).why()

    assert why.cause == "backing_off"
    assert "no route" in why.evidence[0]
    assert why.until is not None


async def test_a_step_that_is_to_be_tried_again(store, run):
    async def handler(ctx):
        await ctx.step("charge", lambda: 1 / 0, retry=pgqrs.RetryPolicy(max_attempts=3, base=60, jitter=0))

    why = await (await run(handler)).why()

    assert (why.cause, why.sentence) == ("backing_off", "step 'charge' failed and is tried again in 1 min")
    assert why.evidence == ("step 'charge', attempt 1: ZeroDivisionError: division by zero",)
    assert why.until is not None


async def test_asleep(store, run):
    async def sleeping(ctx):
        await ctx.sleep(3600)

    why = await (await run(sleeping)).why()

    assert why.cause == "asleep"
    assert why.until is not None
    assert why.fix is None


async def test_waiting_for_a_signal(store, run, clock):
    async def waiting(ctx):
        await ctx.wait_for("approve", timeout=600)

    found = await run(waiting)
    clock.advance(60)

    why = await found.why()

    assert (why.cause, why.sentence) == ("waiting_for_signal", "it waits for signal 'approve' since 1 min")
    assert why.fix == f"pgqrs run approve {found.run_id}"
    assert f"to decline: pgqrs run reject {found.run_id}" in why.evidence
    assert (why.until - clock.now()).total_seconds() == 540


async def test_waiting_for_a_signal_whose_payload_is_not_known(store, run):
    async def waiting(ctx):
        await ctx.wait_for("paid")

    found = await run(waiting)

    why = await found.why()

    assert why.fix == f"pgqrs run signal {found.run_id} paid PAYLOAD"
    assert "PAYLOAD is the JSON that ctx.wait_for('paid') returns; leave it out for None" in why.evidence


async def test_waiting_for_a_person(store, run):
    async def waiting(ctx):
        await ctx.pause("approve the invoice")

    found = await run(waiting)

    why = await found.why()

    assert why.cause == "waiting_for_person"
    assert why.sentence.endswith("approve the invoice")
    assert why.fix == f"pgqrs run resume --step=pause --data=DATA {found.run_id}"


async def test_paused_by_a_person(store, run):
    await _worker(store, _nothing)
    found = await run()
    await flow.pause(found.run_id, store, reason="maintenance")

    why = await found.why()

    assert why.cause == "paused"
    assert why.sentence.endswith("maintenance")


async def test_waiting_for_children(store, run):
    await store.create_workflow("child")

    async def parent(ctx):
        child = await ctx.spawn("child")
        await child.result()

    found = await run(parent)

    why = await found.why()

    assert why.cause == "waiting_for_children"
    assert "'child' is PENDING" in why.evidence[0]


async def test_a_worker_is_at_work_on_it(store, run):
    began, end = asyncio.Event(), asyncio.Event()

    async def working(ctx):
        began.set()
        await end.wait()

    found = await run()
    worker, polling = await _holding(store, working)
    await began.wait()

    why = await found.why()

    end.set()
    worker.stop()
    await polling
    assert why.cause == "leased"
    assert why.evidence[0] == "attempt 1 of 3"


async def _lost_by_a_worker(store):
    """Leased for ten seconds by somebody who is gone."""
    queue_id = (await workflows.get(store.database, "flow")).queue_id
    worker_id = await workers.register(store.database, queue_id=queue_id, name="dead", port=0, info={"pid": 1})
    [_] = await claims.claim(store.database, [Source(queue_id, 10)], worker_id=worker_id, batch=1)


async def test_a_lease_that_ran_out(store, run, clock):
    found = await run()
    await _worker(store, _nothing)
    await _lost_by_a_worker(store)
    clock.advance(12)

    why = await found.why()

    assert (why.cause, why.sentence) == ("lease_expired", "the lease of worker dead ran out 2 s ago")
    assert why.evidence[0].endswith("it is taken again")


async def test_held_by_a_worker_that_fell_silent(store, run, clock):
    found = await run()
    queue_id = (await workflows.get(store.database, "flow")).queue_id
    worker_id = await workers.register(store.database, queue_id=queue_id, name="mute", port=0, info={"pid": 1})
    await claims.claim(store.database, [Source(queue_id, 600)], worker_id=worker_id, batch=1)
    clock.advance(300)

    why = await found.why()

    assert why.cause == "holder_silent"
    assert "taken over in 5 min" in why.sentence


async def test_a_dead_letter(store, run, clock):
    found = await run()
    for _ in range(3):
        await _lost_by_a_worker(store)
        clock.advance(12)
    await _executed(store, _nothing)

    why = await found.why()

    assert why.cause == "dead_letter"
    assert why.fix == f"pgqrs run restart {found.run_id}"


@pytest.mark.breaks("I4")
async def test_failed_because_of_its_children(store):
    failures = await Failures(store).begin()
    parent = await failures.running()
    first, second = await failures.spawn(parent, 2)
    await failures.end(await failures.claim(first), culprits=[])
    await flow.cancel(second, store)
    caught = step("caught", StepStatus.ERROR)
    await failures.end(parent, result(first), caught, culprits=[f"result:{first}"])

    why = await (await flow.get_run(parent.run_id, store)).why()

    assert why.cause == "failed"
    assert why.evidence == (
        "last error: ValueError: no",
        f"step 'result:{first}' failed",
        f"child {first} of 'flow' ended in ERROR",
        f"child {second} of 'flow' ended in CANCELLED",
    )
    assert why.fix == f"pgqrs run retry-children {parent.run_id}"


async def test_cancelled_with_its_children(store):
    failures = await Failures(store).begin()
    parent = await failures.running()
    [child] = await failures.spawn(parent, 1)
    await flow.cancel(parent.run_id, store)

    why = await (await flow.get_run(parent.run_id, store)).why()

    assert why.evidence == (f"child {child} of 'flow' ended in CANCELLED",)
    assert why.fix == f"pgqrs run retry-children {parent.run_id}"


async def test_parked_as_its_code_has_changed(store, run):
    async def before(ctx):
        await ctx.step("one", _one)
        await ctx.sleep(60)

    async def after(ctx):
        await ctx.step("two", _one)

    found = await run(before)
    await flow.resume(found.run_id, store)
    await _executed(store, after)

    why = await found.why()

    assert why.cause == "parked"
    assert "'two'" in why.evidence[0]
    assert f"pgqrs run reset {found.run_id}" in why.evidence[2]
    assert why.fix == f"pgqrs run resume {found.run_id}"


async def test_that_it_is_parked_comes_before_what_else_is_in_its_way(store, run):
    async def before(ctx):
        await ctx.step("one", _one)
        await ctx.sleep(60)

    async def after(ctx):
        await ctx.step("two", _one)

    found = await run()
    for handler in (before, after):
        await flow.resume(found.run_id, store)
        worker = await _worker(store, handler)
        await worker.run_until_idle()
        await worker.close()
    [queue] = await pgqrs.admin(store).queues()
    await pgqrs.admin(store).pause_queue(queue)

    why = await found.why()

    assert why.cause == "parked"
    assert why.fix == f"pgqrs run resume {found.run_id}"
    assert [each[:10] for each in why.evidence[3:]] == ["also: its ", "also: no w"]


async def _one():
    return 1


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "deleted"])
async def test_a_run_that_will_not_move_any_more(store, run, end):
    async def failing(ctx):
        raise pgqrs.PermanentError("no such customer")

    found = await run({"succeeded": _nothing, "failed": failing}.get(end))
    if end == "cancelled":
        await flow.cancel(found.run_id, store)
    if end == "deleted":
        await flow.delete(found.run_id, store, reason="by mistake")

    why = await found.why()

    assert why.cause == end
    if end == "failed":
        assert "no such customer" in why.evidence[0]
