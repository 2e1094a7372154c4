"""Seed 000, section 10.2: the state matrix, one test a row.

A settled run's message is deleted where the seed archives it: it holds nothing that its run does not (decision 0001).
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest

import pgqrs
from pgqrs import PauseError, PermanentError, TransientError
from pgqrs.db.queries import Query

MESSAGE = Query("message_of", "select visible_after, leased_by, attempts from pgqrs_messages where run_id = :run_id")


@dataclass
class State:
    """What one row of the matrix is about."""

    message: str
    run: str
    steps: dict[str, str]
    visible_in: timedelta | None


@pytest.fixture
async def process_file(store):
    await store.create_workflow("process_file")
    return pgqrs.workflow("process_file")


@pytest.fixture
async def worker(store, process_file):
    """Workers with the handlers given; they are signed off in the end."""
    workers = []

    async def create(handler):
        made = await pgqrs.consumer("worker-1", 8080, "process_file").handler(handler).create(store)
        workers.append(made)
        return made

    yield create
    for each in workers:
        await each.close()


@pytest.fixture
def state(store, clock, process_file):
    async def look(run_id) -> State:
        metrics = await pgqrs.admin(store).queue_metrics("process_file")
        run = await process_file.get_run(run_id, store)
        rows = await store.database.fetch(MESSAGE, run_id=run_id)
        counted = {
            "visible": metrics.ready,
            "scheduled": metrics.scheduled,
            "leased": metrics.leased,
            "dead": metrics.dead,
        }
        [message] = [name for name, count in counted.items() if count] or ["gone"]
        assert sum(counted.values()) == len(rows)
        steps = {s.step_id: str(s.status) for s in await run.steps()}
        return State(message, str(run.status), steps, rows[0][0] - clock.now() if rows else None)

    return look


async def test_success_ends_the_message_and_the_run(store, process_file, worker, state):
    async def handler(ctx, params):
        await ctx.step("download", lambda: "data")
        return await ctx.step("process", lambda: "done")

    run_id = await process_file.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    assert await state(run_id) == State("gone", "SUCCESS", {"download": "SUCCESS", "process": "SUCCESS"}, None)
    run = await process_file.get_run(run_id, store)
    assert (run.output(), run.completed_at) == ("done", store.database.clock.now())


async def test_a_permanent_error_ends_the_message_and_the_run_in_error(store, process_file, worker, state, clock):
    def missing():
        raise PermanentError("File not found")

    async def handler(ctx, params):
        await ctx.step("prepare", lambda: None)
        await ctx.step("download", missing)

    run_id = await process_file.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    assert await state(run_id) == State("gone", "ERROR", {"prepare": "SUCCESS", "download": "ERROR"}, None)
    run = await process_file.get_run(run_id, store)
    assert (run.error["message"], run.attempt) == ("File not found", 1)
    # New run: other parameters, nothing of the old one.
    again = await process_file.trigger("correct/path.txt").execute(store)
    assert (await state(again)).steps == {}


async def test_a_crashed_workers_message_is_invisible_until_the_lease_ends_then_another_worker_goes_on(
    store, process_file, worker, state, clock
):
    calls = []
    crashed = asyncio.Event()

    async def never_returns():
        calls.append("process")
        crashed.set()
        await asyncio.Event().wait()

    async def first(ctx, params):
        await ctx.step("download", lambda: calls.append("download") or "data")
        await ctx.step("process", never_returns)

    async def second(ctx, params):
        data = await ctx.step("download", lambda: calls.append("download again"))
        return await ctx.step("process", lambda: f"{data} processed")

    run_id = await process_file.trigger(None).execute(store)
    # A worker that is never heard of again: it neither finishes nor hands back.
    lost = asyncio.create_task((await worker(first)).run_until_idle())
    await crashed.wait()
    while_crashed = await state(run_id)
    clock.advance(store.config.lease_seconds)
    after_the_lease = await state(run_id)
    await (await worker(second)).run_until_idle()
    at_the_end = await state(run_id)
    lost.cancel()

    lease = timedelta(seconds=store.config.lease_seconds)
    assert while_crashed == State("leased", "RUNNING", {"download": "SUCCESS"}, lease)
    assert after_the_lease == State("visible", "RUNNING", {"download": "SUCCESS"}, timedelta(0))
    assert at_the_end == State("gone", "SUCCESS", {"download": "SUCCESS", "process": "SUCCESS"}, None)
    assert calls == ["download", "process"]
    run = await process_file.get_run(run_id, store)
    assert (run.output(), run.attempt) == ("data processed", 2)


async def test_a_transient_error_is_retried_when_it_says(store, process_file, worker, state, clock):
    answers = [TransientError.with_backoff(30), "pong"]

    def external_api():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def handler(ctx, params):
        await ctx.step("prepare", lambda: None)
        return await ctx.step("api_call", external_api)

    run_id = await process_file.trigger(None).execute(store)
    working = await worker(handler)
    await working.run_until_idle()
    waiting = await state(run_id)
    clock.advance(30)
    await working.run_until_idle()

    assert waiting == State(
        "scheduled", "RUNNING", {"prepare": "SUCCESS", "api_call": "PENDING"}, timedelta(seconds=30)
    )
    assert await state(run_id) == State("gone", "SUCCESS", {"prepare": "SUCCESS", "api_call": "SUCCESS"}, None)


async def test_a_paused_run_is_looked_at_each_interval_and_goes_on_when_resumed(
    store, process_file, worker, state, clock
):
    looks = []

    def wait_for_approval():
        looks.append(clock.now())
        raise PauseError("Waiting for approval")

    async def handler(ctx, params):
        await ctx.step("send_approval_request", lambda: None)
        approval_data = await ctx.step("wait_for_approval", wait_for_approval)
        return await ctx.step("process_approval", lambda: approval_data["by"])

    run_id = await process_file.trigger(None).execute(store)
    working = await worker(handler)
    await working.run_until_idle()
    paused = await state(run_id)
    paused_at = (await process_file.get_run(run_id, store)).paused_at
    clock.advance(hours=1)
    await working.run_until_idle()
    bumped = await state(run_id)
    await process_file.resume(run_id, store, step="wait_for_approval", data={"by": "ann"})
    await working.run_until_idle()

    hour = timedelta(hours=1)
    waiting = {"send_approval_request": "SUCCESS", "wait_for_approval": "PAUSED"}
    assert paused == bumped == State("scheduled", "PAUSED", waiting, hour)
    assert paused_at == looks[0]
    assert len(looks) == 2
    done = await process_file.get_run(run_id, store)
    assert (done.status, done.output()) == ("SUCCESS", "ann")
    assert (await state(run_id)).message == "gone"
