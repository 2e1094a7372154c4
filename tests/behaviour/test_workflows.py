"""Workflows: triggered, executed, replayed; steps run once."""

import asyncio
from dataclasses import dataclass

import pytest

import pgqrs
from pgqrs.db.tables.messages import Source


@dataclass
class Params:
    bucket: str
    count: int


@dataclass
class Result:
    path: str
    total: int


async def test_a_run_is_executed_and_its_result_is_kept(run):
    async def handler(ctx, params: Params) -> Result:
        return Result(f"/{params.bucket}", params.count * 2)

    done = await run(handler, Params("b", 21))

    assert done.status == "SUCCESS"
    assert done.output(Result) == Result("/b", 42)
    assert done.output() == Result("/b", 42)
    assert done.output(dict) == {"path": "/b", "total": 42}
    assert (done.attempt, done.input) == (1, {"bucket": "b", "count": 21})


async def test_a_completed_step_is_not_run_again(run, clock, store, flow):
    calls = []

    async def handler(ctx, params):
        first = await ctx.step("first", lambda: calls.append("first") or 1)
        if len(calls) == 1:
            raise RuntimeError("once")
        return first + await ctx.step("second", lambda: calls.append("second") or 2)

    waiting = await run(handler)
    assert (waiting.status, waiting.last_error) == ("RUNNING", "RuntimeError: once")
    clock.advance(10)
    calls.append("replay")
    done = await run(handler, run_id=waiting.run_id)

    assert done.output() == 3
    assert calls == ["first", "replay", "second"]
    assert done.attempt == 2


async def test_steps_may_be_async_or_plain_and_return_what_is_on_record(run):
    async def fetch(n: int) -> tuple[int, int]:
        return n, n

    async def handler(ctx, params):
        pair = await ctx.step("fetch", fetch, 3)
        again = await ctx.step("fetch", fetch, 4)
        plain = await ctx.step("plain", lambda: {1, 2})
        return [pair, again, plain]

    done = await run(handler)

    assert done.output() == [(3, 3), (4, 4), {1, 2}]
    assert [s.step_id for s in await done.steps()] == ["fetch", "fetch#2", "plain"]


async def test_an_error_is_retried_until_max_attempts_then_the_run_is_in_error(run, clock):
    async def handler(ctx, params):
        raise ValueError("never works")

    waiting = await run(handler, max_attempts=2)
    clock.advance(600)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.attempt) == ("ERROR", 2)
    assert done.error["type"] == "ValueError"
    assert "never works" in done.error["traceback"]


async def test_a_permanent_error_ends_the_run_at_once(run):
    async def handler(ctx, params):
        await ctx.step("download", missing)

    def missing():
        raise pgqrs.PermanentError("File not found")

    done = await run(handler)

    assert (done.status, done.last_error) == ("ERROR", "PermanentError: File not found")
    assert [(s.step_id, s.status) for s in await done.steps()] == [("download", "ERROR")]


async def test_a_transient_error_comes_back_after_the_time_it_names(run, clock, store):
    async def handler(ctx, params):
        await ctx.step("api_call", limited)
        return "done"

    tries = []

    def limited():
        tries.append(1)
        if len(tries) == 1:
            raise pgqrs.TransientError.with_backoff(30)

    waiting = await run(handler)
    assert waiting.status == "RUNNING"
    assert [(s.step_id, s.status) for s in await waiting.steps()] == [("api_call", "PENDING")]
    clock.advance(29)
    assert (await run(handler, run_id=waiting.run_id)).status == "RUNNING"
    clock.advance(1)
    assert (await run(handler, run_id=waiting.run_id)).output() == "done"
    assert len(tries) == 2


async def test_a_paused_run_resumes_with_the_data_given(run, store, flow):
    async def handler(ctx, params):
        await ctx.step("send_approval_request", lambda: None)
        approval = await ctx.step("wait_for_approval", wait)
        return approval["by"]

    def wait():
        raise pgqrs.PauseError("Waiting for approval")

    paused = await run(handler)
    assert (paused.status, paused.waiting_for) == ("PAUSED", "Waiting for approval")
    await flow.resume(paused.run_id, store, step="wait_for_approval", data={"by": "ann"})

    assert (await run(handler, run_id=paused.run_id)).output() == "ann"


async def test_a_paused_step_is_tried_again_each_check_interval(run, clock):
    answers = [pgqrs.PauseError("not yet"), pgqrs.PauseError("not yet"), None]

    async def handler(ctx, params):
        return await ctx.step("check", check)

    def check():
        answer = answers.pop(0)
        if answer:
            raise answer
        return "yes"

    paused = await run(handler)
    clock.advance(3599)
    assert (await run(handler, run_id=paused.run_id)).status == "PAUSED"
    clock.advance(1)
    assert (await run(handler, run_id=paused.run_id)).status == "PAUSED"
    clock.advance(3600)
    assert (await run(handler, run_id=paused.run_id)).output() == "yes"


async def test_a_sleep_ends_at_the_time_that_was_fixed_first(run, clock):
    async def handler(ctx, params):
        await ctx.sleep(60)
        return "awake"

    asleep = await run(handler)
    assert asleep.status == "PAUSED"
    clock.advance(59)
    assert (await run(handler, run_id=asleep.run_id)).status == "PAUSED"
    clock.advance(1)
    assert (await run(handler, run_id=asleep.run_id)).output() == "awake"


async def test_a_run_that_sleeps_often_does_not_use_up_its_attempts(run, clock):
    async def handler(ctx, params):
        for _ in range(10):
            await ctx.sleep(1)
        return "awake"

    asleep = await run(handler, max_attempts=2)
    for _ in range(10):
        clock.advance(1)
        asleep = await run(handler, run_id=asleep.run_id)

    assert (asleep.status, asleep.output()) == ("SUCCESS", "awake")


@pytest.mark.row("B8.2")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_signal_is_consumed_once_whenever_it_was_sent(run, store, flow, when):
    async def handler(ctx, params):
        return [await ctx.wait_for("go"), await ctx.wait_for("go")]

    run_id = await flow.trigger(None).execute(store)
    if when == "after":
        assert (await run(handler, run_id=run_id)).waiting_for == "go"
    await flow.signal(run_id, store, "go", {"n": 1})
    await flow.signal(run_id, store, "go", {"n": 2})

    assert (await run(handler, run_id=run_id)).output() == [{"n": 1}, {"n": 2}]


async def test_a_signal_that_does_not_come_times_out(run, clock):
    async def handler(ctx, params):
        try:
            return await ctx.wait_for("go", timeout=60)
        except pgqrs.WaitTimeout:
            return "too late"

    waiting = await run(handler)
    clock.advance(60)

    assert (await run(handler, run_id=waiting.run_id)).output() == "too late"


async def test_a_parent_waits_for_its_children_and_gets_their_results(run, store):
    async def handler(ctx, n: int):
        if n:
            return n * 10
        return await ctx.gather(*[(await ctx.spawn("flow", i)).result() for i in (1, 2, 3)])

    done = await run(handler, 0)

    assert done.output() == [10, 20, 30]


async def test_map_runs_one_child_per_item(run):
    async def handler(ctx, n: int):
        return n * 10 if n else await ctx.map("flow", [1, 2, 3, 4, 5], limit=2)

    assert (await run(handler, 0)).output() == [10, 20, 30, 40, 50]


async def test_the_failure_of_a_child_reaches_its_parent(run):
    async def handler(ctx, n: int):
        if n:
            raise pgqrs.PermanentError("no")
        try:
            await (await ctx.spawn("flow", 1)).result()
        except pgqrs.ExecutionFailed as error:
            return error.error

    assert (await run(handler, 0)).output() == "PermanentError: no"


@pytest.mark.row("B8.5")
async def test_cancel_reaches_the_children(run, store, flow):
    async def handler(ctx, n: int):
        return await ctx.wait_for("never") if n else await (await ctx.spawn("flow", 1)).result()

    parent = await run(handler, 0)
    await flow.cancel(parent.run_id, store, reason="enough")

    page = await flow.runs(store)
    assert [each.status for each in page] == ["CANCELLED", "CANCELLED"]
    assert (await parent.refresh()).last_error == "enough"
    with pytest.raises(pgqrs.InvalidTransition):
        await flow.signal(parent.run_id, store, "never")


async def test_an_error_can_be_restarted_and_keeps_its_completed_steps(run, store, flow):
    calls = []

    async def handler(ctx, params):
        await ctx.step("one", lambda: calls.append("one"))
        return await ctx.step("two", two)

    def two():
        calls.append("two")
        if calls.count("two") == 1:
            raise pgqrs.PermanentError("broken")
        return "fixed"

    failed = await run(handler)
    assert failed.status == "ERROR"
    await flow.restart(failed.run_id, store)

    assert (await run(handler, run_id=failed.run_id)).output() == "fixed"
    assert calls == ["one", "two", "two"]
    with pytest.raises(pgqrs.AlreadyCompleted):
        await flow.restart(failed.run_id, store)


async def test_reset_starts_over_or_from_a_step(run, store, flow):
    calls = []

    async def handler(ctx, params):
        for name in "abc":
            await ctx.step(name, lambda name=name: calls.append(name))

    done = await run(handler)
    await flow.reset(done.run_id, store, from_step="b")
    await run(handler, run_id=done.run_id)
    await flow.reset(done.run_id, store)
    await run(handler, run_id=done.run_id)

    assert "".join(calls) == "abc" + "bc" + "abc"


async def test_branches_of_gather_have_ids_of_their_own(run):
    async def handler(ctx, params):
        async def helper(n):
            await asyncio.sleep(0)
            return [await ctx.step("x", lambda: n), await ctx.step("x", lambda: n * 2)]

        together = await asyncio.gather(ctx.step("a", lambda: 1), ctx.step("b", lambda: 2))
        return together + await asyncio.gather(helper(1), helper(2))

    done = await run(handler)

    assert done.output() == [1, 2, [1, 2], [2, 4]]
    ids = {s.step_id for s in await done.steps()}
    assert {"a", "b"} < ids
    assert len(ids) == 6


async def test_a_sleep_in_one_branch_lets_the_others_finish_their_work(run, clock):
    done = []

    async def handler(ctx, params):
        async def sleeper():
            await ctx.sleep(60)
            return "slept"

        async def worker():
            for n in range(3):
                await ctx.step("work", lambda n=n: done.append(n))
            return "worked"

        async with asyncio.TaskGroup() as group:
            one, other = group.create_task(sleeper()), group.create_task(worker())
        return [one.result(), other.result()]

    asleep = await run(handler)
    assert (asleep.status, done) == ("PAUSED", [0, 1, 2])
    clock.advance(60)

    assert (await run(handler, run_id=asleep.run_id)).output() == ["slept", "worked"]
    assert done == [0, 1, 2]


@pytest.mark.row("B2.14")
async def test_changed_code_parks_the_run_and_names_both_steps(run, clock):
    async def before(ctx, params):
        await ctx.step("charge", lambda: 1)
        await ctx.sleep(60)

    async def after(ctx, params):
        await ctx.step("bill", lambda: 1)

    asleep = await run(before)
    clock.advance(60)
    parked = await run(after, run_id=asleep.run_id)

    assert parked.status == "PAUSED"
    assert "'bill'" in parked.waiting_for
    assert "'charge'" in parked.waiting_for


async def test_a_plain_handler_has_the_same_verbs_without_await(run, clock):
    def handler(ctx, n: int) -> int:
        first = ctx.step("first", lambda: n + 1)
        ctx.sleep(60)
        return ctx.step("second", lambda: first * 2)

    asleep = await run(handler, 20)
    assert asleep.status == "PAUSED"
    clock.advance(60)

    assert (await run(handler, run_id=asleep.run_id)).output() == 42


async def test_an_unknown_workflow_is_named_with_the_nearest(store, flow):
    with pytest.raises(pgqrs.WorkflowNotFound, match="did you mean 'flow'"):
        await pgqrs.workflow("flwo").trigger(1).execute(store)


async def test_a_missing_worker_is_warned_of_or_refused(store, flow, caplog):
    await flow.trigger(1).execute(store)
    assert "no live worker" in caplog.text

    with pytest.raises(pgqrs.NoActiveWorker):
        await flow.trigger(1, require_worker=True).execute(store)


async def test_a_run_that_loses_its_worker_every_time_ends_in_error(run, store, flow, clock):
    from pgqrs.db.runs import claims
    from pgqrs.db.tables import workflows

    run_id = await flow.trigger(1, max_attempts=2).execute(store)
    queue_id = (await workflows.get(store.database, "flow")).queue_id
    for _ in range(2):
        assert await claims.claim(store.database, [Source(queue_id, 10.0)], worker_id=1, batch=1)
        clock.advance(10)

    async def handler(ctx, params):
        raise AssertionError("not leased")

    done = await run(handler, run_id=run_id)

    assert (done.status, done.last_error) == ("ERROR", "worker_lost")


async def test_recorded_answers_are_the_same_in_a_replay(run, clock):
    seen = []

    async def handler(ctx, params):
        seen.append((await ctx.now(), await ctx.uuid(), await ctx.random()))
        await ctx.sleep(60)

    asleep = await run(handler)
    clock.advance(60)
    await run(handler, run_id=asleep.run_id)

    assert seen[0] == seen[1]


async def test_a_step_with_a_policy_is_tried_again_by_itself(run, clock):
    tries = []

    async def handler(ctx, params):
        return await ctx.step("flaky", flaky, retry=pgqrs.RetryPolicy(max_attempts=3, base=10))

    def flaky():
        tries.append(1)
        if len(tries) < 3:
            raise OSError("flaky")
        return len(tries)

    waiting = await run(handler, max_attempts=1)
    for _ in range(2):
        assert waiting.status == "RUNNING"
        clock.advance(60)
        waiting = await run(handler, run_id=waiting.run_id)

    assert waiting.output() == 3
    assert (await waiting.steps())[0].attempts == 3


async def test_an_error_that_the_handler_caught_is_caught_again_in_a_replay(run, clock):
    calls = []

    async def handler(ctx, params):
        try:
            await ctx.step("charge", charge)
        except ValueError as error:
            await ctx.step("refund", lambda: calls.append("refund"))
            await ctx.sleep(60)
            return str(error)

    def charge():
        calls.append("charge")
        raise ValueError("declined")

    asleep = await run(handler)
    clock.advance(60)

    assert (await run(handler, run_id=asleep.run_id)).output() == "declined"
    assert calls == ["charge", "refund"]


@pytest.mark.row("B2.10")
async def test_swallowing_the_suspension_fails_loudly(run):
    async def handler(ctx, params):
        try:
            await ctx.sleep(60)
        except BaseException:  # noqa: BLE001 - that is the point
            return "ignored"

    done = await run(handler)

    assert done.status == "ERROR"
    assert "swallowed its suspension: an `except BaseException` or a bare `except`" in done.last_error
    assert "catch Exception, or raise it again" in done.last_error


async def test_a_result_can_be_waited_for(connect):
    store = await connect(clock=pgqrs.DatabaseClock())
    await store.create_workflow("flow")

    async def handler(ctx, n: int) -> int:
        return await ctx.step("double", lambda: n * 2)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    polling = asyncio.create_task(worker.poll_forever())
    result = await pgqrs.workflow("flow").trigger(21).wait().timeout(30).execute(store)
    worker.stop()
    worker.stop()
    await polling

    assert result == 42


async def test_waiting_ends_with_what_went_wrong(store, flow, run):
    async def handler(ctx, params):
        raise pgqrs.PermanentError("broken")

    failed = await run(handler)
    with pytest.raises(pgqrs.ExecutionFailed, match="broken"):
        await failed.result()

    pending = await flow.get_run(await flow.trigger(1).execute(store), store)
    with pytest.raises(pgqrs.WaitTimeout):
        await pending.result(timeout=0.05)
    await flow.cancel(pending.run_id, store)
    with pytest.raises(pgqrs.RunCancelled):
        await pending.result(timeout=5)


@pytest.mark.backends("sqlite", "postgres")
async def test_a_transaction_and_its_step_commit_together(run, store, config, clock):
    prefix = f'"{config.schema}".' if config.backend == "postgres" else ""
    placeholder = "$1" if config.backend == "postgres" else "?"
    from pgqrs.db.queries import Query

    await store.database.execute(Query("ledger", f"create table {prefix}ledger (amount integer)"))
    fail = [True]

    async def handler(ctx, amount: int):
        async def debit(tx) -> int:
            await tx.execute(f"insert into {prefix}ledger values ({placeholder})", amount)
            if fail.pop():
                raise OSError("half way")
            fail.append(False)
            return len(await tx.fetch(f"select amount from {prefix}ledger"))

        count = await ctx.transaction("debit", debit)
        await ctx.sleep(60)
        return count

    waiting = await run(handler, 5)
    fail.append(False)
    for _ in range(2):
        clock.advance(600)
        waiting = await run(handler, run_id=waiting.run_id)

    assert waiting.output() == 1
    rows = await store.database.fetch(Query("count", f"select count(*) from {prefix}ledger"))
    assert rows[0][0] == 1


@pytest.mark.backends("postgres")
async def test_a_run_can_be_triggered_from_sql(run, store, flow, config, clock):
    import asyncpg

    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    run_id = await connection.fetchval(
        f"""select "{config.schema}".pgqrs_trigger('flow', '{{"n": 1}}', '{{"priority": 7, "max_attempts": 5}}')"""
    )
    with pytest.raises(asyncpg.RaiseError, match="no workflow named 'nope'"):
        await connection.execute(f"""select "{config.schema}".pgqrs_trigger('nope')""")
    await connection.close()
    from datetime import UTC, datetime

    clock.advance((datetime.now(UTC) - clock.now()).total_seconds() + 60)

    async def handler(ctx, params):
        return params["n"] + 1

    done = await run(handler, run_id=run_id)

    assert (done.output(), done.priority, done.max_attempts) == (2, 7, 5)


@pytest.mark.row("B4.28")
@pytest.mark.backends("sqlite")
async def test_a_run_can_be_triggered_in_the_callers_transaction(run, store, flow, config, clock):
    import sqlite3

    connection = sqlite3.connect(config.path)
    undone = pgqrs.using(connection).trigger("flow", 1)
    connection.rollback()
    kept = pgqrs.using(connection).trigger("flow", 2, priority=3)
    pgqrs.using(connection).signal(kept, "go", "!")
    connection.commit()
    connection.close()
    from datetime import UTC, datetime

    clock.advance((datetime.now(UTC) - clock.now()).total_seconds() + 60)

    async def handler(ctx, params):
        return [params, await ctx.wait_for("go")]

    assert (await run(handler, run_id=kept)).output() == [2, "!"]
    assert undone == kept


async def test_many_plain_handlers_at_once_do_not_wait_for_each_others_threads(store, flow):
    import threading

    together = threading.Barrier(30, timeout=20)

    def handler(ctx, n: int):
        together.wait()
        return ctx.step("double", lambda: n * 2)

    run_ids = await flow.trigger_many(range(30)).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(30).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert [(await flow.get_run(run_id, store)).output() for run_id in run_ids] == [n * 2 for n in range(30)]


async def test_a_stopped_worker_hands_its_run_back_and_does_no_more_of_it(connect):
    store = await connect(clock=pgqrs.DatabaseClock())
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    reached, effects = asyncio.Event(), []

    async def handler(ctx, params):
        await ctx.step("first", lambda: effects.append("first"))
        await ctx.step("long", long)
        await ctx.step("last", lambda: effects.append("last"))

    async def long():
        reached.set()
        await asyncio.Event().wait()

    run_id = await flow.trigger(1, max_attempts=1).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).grace(0).create(store)
    polling = asyncio.create_task(worker.poll_forever())
    await reached.wait()
    worker.stop()
    await polling

    run = await flow.get_run(run_id, store)
    assert run.status == "PENDING"
    assert effects == ["first"]

    async def quick(ctx, params):
        await ctx.step("first", lambda: effects.append("again"))
        await ctx.step("long", lambda: None)
        return "done"

    worker = await pgqrs.consumer("w", 0, "flow").handler(quick).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert (await run.refresh()).output() == "done"
    assert (run.attempt, effects) == (1, ["first"])


async def test_what_a_step_was_called_with_is_kept_when_it_is_small(run):
    async def handler(ctx, params):
        await ctx.step("small", lambda n: n, 7)
        await ctx.step("large", len, "x" * 10_000)

    steps = {s.step_id: s for s in await (await run(handler)).steps()}

    assert steps["small"].input == {"args": [7]}
    assert steps["large"].input is None


@pytest.mark.row("B3.1")
@pytest.mark.backends("sqlite")
async def test_a_first_signal_drains_and_a_second_hands_back(connect):
    import os
    import signal

    store = await connect(clock=pgqrs.DatabaseClock())
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    reached, finish = asyncio.Event(), asyncio.Event()

    async def handler(ctx, params):
        reached.set()
        await finish.wait()
        return "done"

    async def signalled(times):
        reached.clear()
        run_id = await flow.trigger(1).execute(store)
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).grace(60).create(store)
        polling = asyncio.create_task(worker.poll_forever(signals=True))
        await reached.wait()
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGTERM)
            while not worker._loop.is_stopping:
                await asyncio.sleep(0)
        if times == 1:
            finish.set()
        await asyncio.wait_for(polling, 10)
        return (await flow.get_run(run_id, store)).status

    assert await signalled(2) == "PENDING"
    assert await signalled(1) == "SUCCESS"


async def test_a_plain_handler_can_do_things_side_by_side(run, clock):
    import threading

    together = threading.Barrier(2, timeout=20)
    calls = []

    def handler(ctx, n: int):
        def branch(name):
            ctx.step("meet", together.wait)
            ctx.step("note", lambda: calls.append(name))
            ctx.sleep(60 if name == "a" else 30)
            return ctx.step("name", lambda: name)

        return ctx.gather(lambda: branch("a"), lambda: branch("b"))

    asleep = await run(handler, 1)
    assert asleep.status == "PAUSED"
    for _ in range(2):
        clock.advance(30)
        asleep = await run(handler, run_id=asleep.run_id)

    assert asleep.output() == ["a", "b"]
    assert sorted(calls) == ["a", "b"]
    ids = {s.step_id for s in await asleep.steps()}
    assert {"note@1", "note@2", "name@1", "name@2"} < ids


async def test_progress_is_there_to_be_seen(run):
    async def handler(ctx, params):
        await ctx.progress(3, 10, "packing")
        await ctx.sleep(60)

    assert (await run(handler)).progress == {"done": 3, "total": 10, "note": "packing"}


async def test_a_step_that_takes_too_long_has_failed(run):
    async def handler(ctx, params):
        await ctx.step("slow", asyncio.Event().wait, timeout=0.01)

    done = await run(handler, max_attempts=1)

    assert (done.status, done.error["type"]) == ("ERROR", "TimeoutError")
    assert [s.status for s in await done.steps()] == ["ERROR"]


async def test_a_worker_can_be_given_another_handler(store, flow):
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx, n: "old").create(store)
    worker.set_handler(lambda ctx, n: "new")
    run_id = await flow.trigger(1).execute(store)
    await worker.run_until_idle()
    await worker.close()

    assert (await flow.get_run(run_id, store)).output() == "new"


async def test_a_step_remembers_when_it_began_and_ended(store, flow, run, clock):
    def work():
        clock.advance(7)

    def fail():
        clock.advance(5)
        raise pgqrs.PermanentError("no")

    async def handler(ctx, params):
        await ctx.step("work", work)
        await ctx.step("fail", fail)

    done = await run(handler)

    steps = {step.step_id: step for step in await flow.steps(done.run_id, store)}
    assert {name: (s.completed_at - s.started_at).total_seconds() for name, s in steps.items()} == {
        "work": 7,
        "fail": 5,
    }


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [Unspeakable(), ValueError("a\0b"), pgqrs.PermanentError("\ud800"), pgqrs.PermanentError(None)],
    ids=["no text", "NUL", "surrogate", "not text"],
)
async def test_whatever_an_error_says_its_run_ends(run, error):
    async def handler(ctx, params):
        raise error

    done = await run(handler, max_attempts=1)

    assert done.status == "ERROR"
    assert done.last_error.startswith(type(error).__name__)


@pytest.mark.parametrize("in_step", [False, True])
async def test_a_pause_may_quote_what_no_database_stores(run, in_step):
    async def handler(ctx, params):
        def wait():
            raise pgqrs.PauseError("a\0b\ud800")

        return await ctx.step("wait", wait) if in_step else wait()

    paused = await run(handler)

    assert paused.status == "PAUSED"
    assert paused.waiting_for == "a\ufffdb?"


@pytest.mark.parametrize("message", ["a\0b\ud800", 5, None])
async def test_a_run_pauses_for_a_text_or_fails_at_once(run, message):
    async def handler(ctx, params):
        await ctx.pause(message)

    done = await run(handler, max_attempts=1)

    assert done.status == ("PAUSED" if isinstance(message, str) else "ERROR")


@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, 1e300, "soon"])
async def test_a_delay_that_cannot_be_is_the_usual_backoff(run, clock, seconds, in_step):
    tries = []

    async def handler(ctx, params):
        def attempt():
            tries.append(1)
            if len(tries) == 1:
                raise pgqrs.TransientError("busy", retry_after=seconds)
            return "done"

        return await ctx.step("attempt", attempt, retry=pgqrs.RetryPolicy(3)) if in_step else attempt()

    waiting = await run(handler)
    clock.advance(60)

    assert (await run(handler, run_id=waiting.run_id)).output() == "done"


async def test_steps_are_listed_and_reset_in_the_order_of_their_records(store, flow, run, clock):
    """A step that took long began, by its worker's clock, before others that were recorded earlier."""

    async def handler(ctx, params):
        await ctx.step("one", lambda: clock.advance(1))
        clock.advance(-1.5)
        await ctx.step("two", lambda: clock.advance(3))
        await ctx.step("three", lambda: None)

    done = await run(handler)
    assert [step.step_id for step in await flow.steps(done.run_id, store)] == ["one", "two", "three"]

    await flow.reset(done.run_id, store, from_step="two")

    assert [step.step_id for step in await flow.steps(done.run_id, store)] == ["one"]
