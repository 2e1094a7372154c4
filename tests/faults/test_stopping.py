"""How a worker stops: signals, closed output, a database that is away."""

import asyncio
import logging
import os
import signal
import sys
import time

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.queries import Query
from rig import forks
from rig.gate import gate


@pytest.fixture
async def flow(live_store):
    await live_store.create_workflow("flow")
    return pgqrs.workflow("flow")


async def lines_in(file, count):
    async with asyncio.timeout(30):
        while not file.exists() or len(file.read_text().splitlines()) < count:
            await asyncio.sleep(0.01)


def line(file, text):
    with file.open("a") as open_file:
        open_file.write(f"{text}\n")


@pytest.mark.row("B3.1", "B3.7")
@pytest.mark.several_processes
async def test_a_stopped_worker_hands_back_twenty_running_steps_at_once(live_store, flow, config, tmp_path):
    begun = tmp_path / "begun"

    async def handler(ctx):
        async def wait():
            line(begun, ctx.run_id)
            await asyncio.Event().wait()

        await ctx.step("wait", wait)

    run_ids = await flow.trigger_many([None] * 20).execute(live_store)
    worker = forks.worker(config, handler, grace=0.1, lease_seconds=300)
    await lines_in(begun, 20)
    os.kill(worker, signal.SIGTERM)
    code = await forks.ended(worker)
    held = await live_store.database.fetch(
        Query("held", "select run_id from pgqrs_messages where attempts > 0 or leased_by is not null")
    )

    assert code == 0
    assert held == []
    assert {(await flow.get_run(each, live_store)).status for each in run_ids} == {"PENDING"}


@pytest.mark.row("B3.2")
@pytest.mark.several_processes
async def test_a_worker_that_is_told_to_stop_while_its_loop_is_blocked_drains_as_soon_as_it_can(
    live_store, flow, config, tmp_path
):
    begun, may_go_on = tmp_path / "begun", tmp_path / "go on"

    async def handler(ctx):
        line(begun, ctx.run_id)
        while not may_go_on.exists():
            time.sleep(0.01)
        return await ctx.step("last", lambda: "drained")

    first = await flow.trigger().execute(live_store)
    worker = forks.worker(config, handler)
    await lines_in(begun, 1)
    os.kill(worker, signal.SIGTERM)
    later = await flow.trigger().execute(live_store)
    may_go_on.touch()

    assert await forks.ended(worker) == 0
    assert (await flow.get_run(first, live_store)).output() == "drained"
    assert (await flow.get_run(later, live_store)).status == "PENDING"


async def two_steps(ctx):
    await ctx.step("one", lambda: 1)
    return await ctx.step("two", lambda: 2)


async def polled(store, handler, *, grace=0.0):
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).grace(grace).create(store)
    return worker, asyncio.create_task(worker.poll_forever())


async def points_of(store, flow):
    """What a worker reaches between its first claim and the end of a run."""
    with faults.recorded() as points:
        run_id = await flow.trigger().execute(store)
        points.clear()
        worker, polling = await polled(store, two_steps)
        await (await flow.get_run(run_id, store)).result(30)
    worker.stop()
    await polling
    names = ("claims.claim", "settlement.commit", "messages.next_due")
    return [point for point in dict.fromkeys(points) if point.name in names and point.phase in ("before", "after")]


@pytest.mark.row("B3.4")
async def test_a_worker_that_is_stopped_at_any_call_leaves_nothing_half_done(live_store, flow):
    for point in await points_of(live_store, flow):
        run_id = await flow.trigger().execute(live_store)
        worker, polling = await polled(live_store, two_steps)
        with faults.injected(faults.at(*point, worker.stop)):
            await asyncio.wait_for(polling, 30)
        stopped = await flow.get_run(run_id, live_store)
        held = await live_store.database.fetch(
            Query("held", "select 1 from pgqrs_messages where attempts > 0 or leased_by is not null")
        )

        assert (point, stopped.status in ("PENDING", "SUCCESS"), held) == (point, True, [])
        other = await pgqrs.consumer("other", 0, "flow").handler(two_steps).create(live_store)
        await other.run_until_idle()
        await other.close()
        done = await flow.get_run(run_id, live_store)
        assert (point, done.status, done.attempt) == (point, "SUCCESS", 1)


@pytest.mark.row("B3.5")
@pytest.mark.backends("postgres")
async def test_a_worker_that_is_stopped_while_the_database_is_away_ends_all_the_same(live_store, flow, config):
    begun = asyncio.Event()

    async def handler(ctx):
        begun.set()
        await asyncio.Event().wait()

    run_id = await flow.trigger().execute(live_store)
    async with gate(config.dsn) as door:
        store = await pgqrs.connect_with(config.with_changes(dsn=door.dsn, lease_seconds=1))
        worker, polling = await polled(store, handler)
        await begun.wait()
        await door.shut()
        began = time.monotonic()
        worker.stop()
        await asyncio.wait_for(polling, 60)
        seconds = time.monotonic() - began
        await store.close()

    print(f"ended after {seconds:.1f} s")
    # Whoever has docker's ten seconds has ended by itself.
    assert seconds < 9
    other = await pgqrs.consumer("other", 0, "flow").handler(two_steps).create(live_store)
    polling = asyncio.create_task(other.poll_forever())
    assert await (await flow.get_run(run_id, live_store)).result(30) == 2
    other.stop()
    await polling


@pytest.mark.row("B3.6")
@pytest.mark.backends("sqlite")
async def test_a_worker_whose_output_is_closed_goes_on_and_a_hangup_drains_it(live_store, flow, config, tmp_path):
    begun = tmp_path / "begun"

    async def handler(ctx):
        logging.getLogger("pgqrs.run").error("nobody reads this")
        line(begun, ctx.run_id)
        return "done"

    async def work_without_output():
        reading, writing = os.pipe()
        os.close(reading)
        for number in (1, 2):
            os.dup2(writing, number)
        logging.basicConfig(stream=os.fdopen(1, "w", buffering=1), level=logging.INFO, force=True)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        await forks.serve(config, handler, lease_seconds=30)

    run_ids = await flow.trigger_many([None] * 3).execute(live_store)
    worker = forks.child(work_without_output)
    await lines_in(begun, 3)
    results = [await (await flow.get_run(each, live_store)).result(30) for each in run_ids]
    os.kill(worker, signal.SIGHUP)

    assert await forks.ended(worker) == 0
    assert results == ["done"] * 3


@pytest.mark.row("B3.8")
@pytest.mark.several_processes
async def test_what_a_process_triggers_just_before_it_ends_is_there(live_store, flow, config):
    async def trigger_and_end():
        store = await pgqrs.connect_with(config)
        await flow.trigger(7).execute(store)
        os._exit(5)

    assert await forks.ended(forks.child(trigger_and_end)) == 5
    [run] = await flow.runs(live_store)
    assert (run.status, run.input) == ("PENDING", 7)
