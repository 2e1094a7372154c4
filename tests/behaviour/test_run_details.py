"""What pages show of runs beside their rows."""

import asyncio

import pytest

import pgqrs
from pgqrs.db.tables import queues
from pgqrs.db.tables.runs import FIRST_STEP, StepPlace
from pgqrs.db.views import run_details
from pgqrs.types import StepStatus

flow = pgqrs.workflow("flow")


@pytest.fixture
async def run(store):
    await store.create_workflow("flow")

    async def work(handler, params=None, **options):
        run_id = await flow.trigger(params, **options).execute(store)
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()
        return run_id

    return work


async def three(ctx):
    for name in ("a", "b", "c"):
        await ctx.step(name, str)


async def waits(ctx):
    await ctx.step("a", lambda: 1)
    await ctx.wait_for("approve", timeout=60)


async def fails(ctx):
    await ctx.step("a", lambda: 1)

    def no():
        raise TimeoutError("no answer")

    await ctx.step("b", no)


async def test_how_far_runs_are_and_how_far_they_may_go(store, run, clock):
    done = await run(three)
    waiting = await run(waits)
    failed = await run(fails, max_attempts=1)
    later = await flow.trigger(delay=90).execute(store)
    found = await run_details.of_runs(store.database, [(each, "flow") for each in (done, waiting, failed, later)])

    assert (found[done].done, found[done].due_in_seconds, found[done].expected) == (3, None, 3)
    assert (found[waiting].done, found[waiting].open) == (1, 1)
    assert found[waiting].due_in_seconds == pytest.approx(60)
    assert (found[failed].done, found[failed].failed) == (1, 1)
    assert (found[later].done, found[later].due_in_seconds, found[later].expected) == (0, pytest.approx(90), 3)


async def test_nothing_is_asked_about_no_runs(store):
    assert await run_details.of_runs(store.database, []) == {}
    assert await run_details.waits(store.database, []) == []
    assert await run_details.cells(store.database, []) == []


async def test_what_runs_wait_for(store, run):
    run_id = await run(waits)
    [wait] = await run_details.waits(store.database, [run_id])

    assert (wait.run_id, wait.step_id) == (run_id, "wait_for:approve")
    assert "$datetime" in wait.until


async def test_a_timeline_leads_on_where_it_stopped(store, run):
    async def many(ctx):
        await asyncio.gather(*(ctx.step("part", lambda: 1) for _ in range(7)))

    run_id = await run(many)
    seen = []
    after = FIRST_STEP
    while page := await run_details.timeline(store.database, run_id, limit=3, after=after):
        seen += page
        after = StepPlace(page[-1].started_at, page[-1].ordinal, page[-1].step_id)

    assert len({step.step_id for step in seen}) == len(seen) == 7


async def test_a_step_with_its_values_cut(store, run):
    async def large(ctx):
        await ctx.step("big", lambda: "x" * 500)

    run_id = await run(large)
    found = await run_details.step(store.database, run_id, "big", cut=100)

    assert (found.step.status, len(found.output.text), found.output.length, found.output.is_whole) == (
        StepStatus.SUCCESS,
        100,
        502,
        False,
    )
    assert (found.error.text, found.error.is_whole) == (None, True)
    assert await run_details.step(store.database, run_id, "small", cut=100) is None


async def test_failed_attempts_are_told_oldest_first(store, run, clock):
    run_id = await run(fails, max_attempts=2)
    clock.advance(60)
    worker = await pgqrs.consumer("w", 0, "flow").handler(fails).create(store)
    await worker.run_until_idle()
    await worker.close()
    found = await run_details.failed_attempts(store.database, run_id)

    assert [(each.step_id, each.attempt, each.kind, each.message) for each in found] == [
        ("b", 1, "TimeoutError", "no answer"),
        ("b", 2, "TimeoutError", "no answer"),
    ]


async def test_the_steps_of_many_runs(store, run):
    first, second = await run(three), await run(fails, max_attempts=1)
    found = await run_details.cells(store.database, [first, second])

    assert {(cell.run_id, cell.step_id, cell.status) for cell in found} == {
        (first, "a", StepStatus.SUCCESS),
        (first, "b", StepStatus.SUCCESS),
        (first, "c", StepStatus.SUCCESS),
        (second, "a", StepStatus.SUCCESS),
        (second, "b", StepStatus.ERROR),
    }


async def test_messages_in_the_order_in_which_they_are_taken(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    low, high, later = [
        await producer.enqueue({"n": n}, priority=priority, delay=delay)
        for n, (priority, delay) in enumerate([(0, 0), (9, 0), (0, 60)])
    ]
    queue = await queues.get(store.database, "tasks")
    found = await run_details.next_messages(store.database, queue.queue_id, limit=10, cut=5)

    assert [each.message_id for each in found] == [high, low, later]
    assert found[2].due_in_seconds == pytest.approx(60)
    assert found[0].payload == '{"n":'


async def test_workers_and_what_they_hold(store, clock):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many([1, 2, 3], max_attempts=1)
    await (await store.producer("tasks")).enqueue_many([4, 5])
    consumer = await store.consumer("tasks", name="w1")
    held = await consumer.dequeue(4, lease_seconds=60)
    [worker] = await run_details.workers_shown(store.database, limit=10)
    [told] = await pgqrs.admin(store).workers()

    assert len(held) == 4
    assert worker == told
    assert worker.leased == 4
