"""What a worker process counts, seen through the public API on every backend."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults, telemetry
from pgqrs.telemetry.metric_types import MOST_NAMES

AT_ONCE = pgqrs.RetryPolicy(max_attempts=3, base=0.0, jitter=0.0)


async def test_a_run_that_succeeds_is_counted_with_its_wait_and_its_length(store, flow, worker, clock, metric):
    async def handler(ctx, params):
        clock.advance(5)

    await flow.trigger(None).execute(store)
    clock.advance(2)
    await (await worker(handler)).run_until_idle()

    assert metric("pgqrs_runs_finished_total", workflow="flow", status="SUCCESS") == 1
    assert metric("pgqrs_runs_finished_total", workflow="flow", status="ERROR") == 0
    assert metric("pgqrs_run_wait_seconds_count", workflow="flow") == 1
    assert metric("pgqrs_run_wait_seconds_sum", workflow="flow") == pytest.approx(2)
    assert metric("pgqrs_run_wait_seconds_bucket", workflow="flow", le="1") == 0
    assert metric("pgqrs_run_wait_seconds_bucket", workflow="flow", le="2.5") == 1
    assert metric("pgqrs_run_duration_seconds_sum", workflow="flow") == pytest.approx(5)


async def test_the_wait_of_a_delayed_run_begins_when_it_is_due(store, flow, worker, clock, metric):
    async def handler(ctx, params):
        return None

    await flow.trigger(None, delay=3600).execute(store)
    clock.advance(3601)
    await (await worker(handler)).run_until_idle()

    assert metric("pgqrs_run_wait_seconds_sum", workflow="flow") == pytest.approx(1)


async def test_a_retried_step_is_counted_and_so_is_each_of_its_attempts(live_store, metric):
    calls = []

    async def flaky():
        calls.append(1)
        if len(calls) < 3:
            raise OSError("not yet")

    async def handler(ctx, params):
        await ctx.step("steady", lambda: 1)
        await ctx.step("flaky", flaky, retry=AT_ONCE)

    await _run(live_store, handler)

    assert metric("pgqrs_step_retries_total", workflow="flow") == 2
    assert metric("pgqrs_step_duration_seconds_count", workflow="flow", status="SUCCESS") == 2
    assert metric("pgqrs_step_duration_seconds_count", workflow="flow", status="ERROR") == 2


async def test_a_run_that_fails_is_counted_and_its_last_attempt_is_no_retry(live_store, metric):
    async def broken():
        raise pgqrs.PermanentError("never")

    async def handler(ctx, params):
        await ctx.step("broken", broken, retry=AT_ONCE)

    await _run(live_store, handler)

    assert metric("pgqrs_runs_finished_total", workflow="flow", status="ERROR") == 1
    assert metric("pgqrs_runs_finished_total", workflow="flow", status="SUCCESS") == 0
    assert metric("pgqrs_step_retries_total", workflow="flow") == 0
    assert metric("pgqrs_step_duration_seconds_count", workflow="flow", status="ERROR") == 1


async def test_a_step_that_the_next_attempt_of_its_run_runs_anew_is_a_retry_but_took_its_time_once(
    live_store, metric
):
    calls = []

    async def flaky():
        calls.append(1)
        if len(calls) == 1:
            raise OSError("not yet")

    @pgqrs.workflow(name="flow", retry=AT_ONCE)
    async def handler(ctx, params):
        await ctx.step("flaky", flaky)

    worker = await pgqrs.worker("w").workflows({"flow": handler}).create(live_store)
    await pgqrs.workflow("flow").trigger(None).execute(live_store)
    await worker.run_until_idle()
    await worker.close()

    assert metric("pgqrs_step_retries_total", workflow="flow") == 1
    assert metric("pgqrs_step_duration_seconds_count", workflow="flow", status="ERROR") == 1
    assert metric("pgqrs_step_duration_seconds_count", workflow="flow", status="SUCCESS") == 1


async def test_what_has_no_body_is_no_step_that_took_time(live_store, metric):
    async def handler(ctx, params):
        await ctx.sleep(0.001)
        await ctx.emit("told")

    await _run(live_store, handler)

    assert metric("pgqrs_step_duration_seconds_count", workflow="flow", status="SUCCESS") == 0


async def test_a_transaction_is_a_step_that_took_time(live_store, metric):
    async def nothing(tx):
        return 1

    async def handler(ctx, params):
        await ctx.transaction("here", nothing)

    await _run(live_store, handler)

    assert metric("pgqrs_step_duration_seconds_count", workflow="flow", status="SUCCESS") == 1


async def test_after_a_crash_only_what_is_executed_again_is_counted(store, flow, worker, clock, metric):
    """The first worker stands still in its second step for longer than its lease, as one that was killed."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hangs():
        if not reached.is_set():
            reached.set()
            await go_on.wait()

    async def handler(ctx, params):
        await ctx.step("one", lambda: clock.advance(1))
        await ctx.step("two", hangs)
        await ctx.step("three", lambda: clock.advance(1))

    run_id = await flow.trigger(None).execute(store)
    lost = asyncio.create_task((await worker(handler)).run_until_idle())
    await asyncio.wait_for(reached.wait(), 30)
    clock.advance(store.config.lease_seconds + 1)
    await (await worker(handler)).run_until_idle()
    go_on.set()
    await asyncio.wait_for(lost, 30)

    run = await flow.get_run(run_id, store)
    assert (run.status, run.attempt) == ("SUCCESS", 2)
    assert metric("pgqrs_runs_finished_total", workflow="flow", status="SUCCESS") == 1
    # One and three, once each: two took no time by the hand-set clock.
    assert metric("pgqrs_step_duration_seconds_count", workflow="flow", status="SUCCESS") == 2
    assert metric("pgqrs_run_wait_seconds_count", workflow="flow") == 2
    # The first worker hears of it, by a hint or when it wants to record its step.
    assert metric("pgqrs_lease_lost_total") == 1


async def test_a_run_whose_workers_were_all_lost_is_counted_by_who_ends_it(store, flow, worker, clock, metric):
    reached = asyncio.Event()

    async def hangs(ctx, params):
        reached.set()
        await asyncio.Event().wait()

    await flow.trigger(None, max_attempts=1).execute(store)
    first = await worker(hangs)
    lost = asyncio.create_task(first.run_until_idle())
    await asyncio.wait_for(reached.wait(), 30)
    clock.advance(store.config.lease_seconds + 1)
    await (await worker(hangs)).run_until_idle()

    assert metric("pgqrs_runs_finished_total", workflow="flow", status="ERROR") == 1
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)


async def test_commits_are_counted_with_what_they_hold(store, flow, worker, metric):
    async def handler(ctx, params):
        await ctx.step("one", lambda: 1)

    await flow.trigger_many(range(5)).execute(store)
    await (await worker(handler)).run_until_idle()

    # A checkpoint and an outcome each, in however many transactions.
    assert metric("pgqrs_commit_batch_size_sum") == 10
    assert 2 <= metric("pgqrs_commit_batch_size_count") <= 10


async def test_slots_are_those_of_the_workers_that_are_there(store, flow, worker, metric):
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def handler(ctx, params):
        reached.set()
        await go_on.wait()

    await flow.trigger(None).execute(store)
    assert metric("pgqrs_worker_slots", state="free") == 0
    made = await worker(handler)
    running = asyncio.create_task(made.run_until_idle())
    await asyncio.wait_for(reached.wait(), 30)

    assert metric("pgqrs_worker_slots", state="busy") == 1
    assert metric("pgqrs_worker_slots", state="free") == 9
    go_on.set()
    await asyncio.wait_for(running, 30)
    assert metric("pgqrs_worker_slots", state="busy") == 0
    await made.close()
    assert metric("pgqrs_worker_slots", state="free") == 0


async def test_heartbeats_that_fail_are_counted_and_the_worker_is_not_ready(connect, config, metric):
    store = await pgqrs.connect_with(config.with_changes(lease_seconds=1), install=True)
    reached, failed, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def handler(ctx, params):
        reached.set()
        await go_on.wait()

    def fail(point):
        if point == ("before", "workers.heartbeat"):
            loop.call_soon_threadsafe(failed.set)
            raise pgqrs.ConnectionFailed("gone")

    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger(None).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    running = asyncio.create_task(worker.poll_forever())
    with faults.injected(fail):
        await asyncio.wait_for(failed.wait(), 30)
        async with asyncio.timeout(30):
            while not await worker.problems():
                await asyncio.sleep(0.01)

        assert [each.partition(" for")[0] for each in await worker.problems()] == ["heartbeats have failed"]
    assert metric("pgqrs_heartbeat_failures_total") >= 1
    go_on.set()
    worker.hand_back()
    await running
    await store.close()


async def test_the_event_loop_is_asked_while_runs_are_held(connect, config, metric):
    async def handler(ctx, params):
        async with asyncio.timeout(30):
            while not metric("pgqrs_event_loop_lag_seconds_count"):
                await asyncio.sleep(0.01)

    async with pgqrs.connect_with(config.with_changes(lease_seconds=1), install=True) as store:
        await _run(store, handler)

    assert metric("pgqrs_runs_finished_total", workflow="flow", status="SUCCESS") == 1
    assert metric("pgqrs_event_loop_lag_seconds_bucket", le="+Inf") >= 1


@pytest.mark.backends("sqlite")
async def test_nobody_counts_before_and_after(store, flow, worker):
    async def handler(ctx, params):
        return None

    assert telemetry.worker_metrics() is None
    telemetry.instrument()
    before = telemetry.worker_metrics()
    telemetry.uninstrument()
    await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    assert "pgqrs_runs_finished_total{" not in before.text()


def test_labels_are_bounded_however_many_workflows_there_are(metric):
    counted = telemetry.worker_metrics()
    for number in range(MOST_NAMES + 50):
        counted.began(f"flow-{number}", 0.1)
        counted.finished(f"flow-{number}", pgqrs.RunStatus.SUCCESS, 0.1)

    labels = {key for key in counted.runs_finished.values if key[1] == "SUCCESS"}
    assert len(labels) == MOST_NAMES + 1
    assert metric("pgqrs_runs_finished_total", workflow="other", status="SUCCESS") == 50
    assert metric("pgqrs_run_wait_seconds_count", workflow="other") == 50


def test_a_name_with_anything_in_it_stays_one_label(metric):
    hostile = 'a"b\\c\nd{}=,é\u202e'
    telemetry.worker_metrics().finished(hostile, pgqrs.RunStatus.ERROR, None)

    assert metric("pgqrs_runs_finished_total", workflow=hostile, status="ERROR") == 1


async def _run(store, handler):
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run_id = await pgqrs.workflow("flow").trigger(None).execute(store)
    polling = asyncio.create_task(worker.poll_forever())
    run = await pgqrs.workflow("flow").get_run(run_id, store)
    try:
        await run.result(60)
    except pgqrs.ExecutionFailed:
        pass
    finally:
        worker.stop()
        await polling
