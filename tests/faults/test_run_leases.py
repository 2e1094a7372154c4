"""Leases of runs: whoever lost one changes nothing, and nobody works on a run that somebody else works on."""

import asyncio
import itertools
import threading
import time
from collections import Counter

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from pgqrs.db.runs import claims, transitions, triggers
from pgqrs.db.runs import settlement as settling
from pgqrs.db.runs.records import Ended, RunWrite, StepRecord, Suspended
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.engine.heartbeat import Heartbeat
from pgqrs.types import RunStatus, StepStatus

LEASE = 10
TABLES = ("workflow_runs", "messages", "workflow_steps", "signals", "workflow_events", "outbox_events")
STEP = StepRecord("stale", 0, StepStatus.SUCCESS, output="1")


class Rig:
    """A workflow, two workers, and the calls that they make."""

    def __init__(self, store, clock):
        self.store, self.db, self.clock = store, store.database, clock
        self.flow = pgqrs.workflow("flow")

    async def begin(self):
        self.workflow = await workflows.create(self.db, "flow")
        queue_id = self.workflow.queue_id
        info = {"pid": 1}
        self.one = await workers.register(self.db, queue_id=queue_id, name="one", port=0, info=info)
        self.other = await workers.register(self.db, queue_id=queue_id, name="other", port=0, info=info)
        return self

    def new_runs(self, **options):
        return NewRuns(self.workflow.workflow_id, self.workflow.queue_id, ["null"], **options)

    async def trigger(self, **options):
        [run_id] = await triggers.trigger(self.db, self.new_runs(**options))
        return run_id

    async def claim(self, worker_id, batch=1):
        found = await claims.claim(self.db, [Source(self.workflow.queue_id, LEASE)], worker_id=worker_id, batch=batch)
        self.last = found[-1] if found else None
        return found

    async def rows(self):
        return {
            table: [
                tuple(row) for row in await self.db.fetch(Query(table, f"select * from pgqrs_{table} order by 1, 2"))
            ]
            for table in TABLES
        }

    async def status(self, run_id):
        return (await self.flow.get_run(run_id, self.store)).status


@pytest.fixture
async def rig(store, clock):
    return await Rig(store, clock).begin()


async def leased_again(rig, run_id):
    rig.clock.advance(LEASE)
    assert await rig.claim(rig.other)


async def cancelled(rig, run_id):
    await rig.flow.cancel(run_id, rig.store)


async def paused(rig, run_id):
    await rig.flow.pause(run_id, rig.store)


async def crashed_and_restarted(rig, run_id):
    rig.clock.advance(LEASE)
    await rig.flow.restart(run_id, rig.store)


async def cancelled_restarted_and_leased(rig, run_id):
    await rig.flow.cancel(run_id, rig.store)
    await rig.flow.restart(run_id, rig.store)
    assert await rig.claim(rig.other)


async def handed_back(rig, run_id):
    fence = rig.last.fence
    assert await settling.commit(rig.db, [RunWrite(fence, end=Suspended(RunStatus.PENDING))]) == {fence}


LOST = [leased_again, cancelled, paused, crashed_and_restarted, cancelled_restarted_and_leased, handed_back]

WRITES = {
    "checkpoint": None,
    "end": Ended(RunStatus.SUCCESS, output="1"),
    "fail": Ended(RunStatus.ERROR, error="{}", last_error="x"),
    "retry": Suspended(RunStatus.RUNNING, delay=1, count_attempt=True),
    "sleep": Suspended(RunStatus.PAUSED, delay=60, waiting_for="sleep"),
    "wait": Suspended(RunStatus.PAUSED, delay=60, signals=("go",), children=True),
}


@pytest.mark.row("B1.7")
@pytest.mark.parametrize("lose", LOST, ids=lambda each: each.__name__)
async def test_a_stale_token_writes_nothing(rig, lose):
    run_id = await rig.trigger()
    [claim] = await rig.claim(rig.one)
    await rig.flow.signal(run_id, rig.store, "go", 1)
    await lose(rig, run_id)
    before = await rig.rows()

    failed = StepRecord("stale", 0, StepStatus.ERROR, error='{"type": "E", "message": ""}')
    for step in (STEP, failed):
        for what, end in WRITES.items():
            held = await settling.commit(rig.db, [RunWrite(claim.fence, (step,), end)])
            assert (what, held, await rig.rows()) == (what, set(), before)
    assert await claims.take_signal(rig.db, claim.fence, STEP, name="go") == (False, None)
    assert await claims.spawn(rig.db, claim.fence, STEP, rig.new_runs()) is None

    assert await rig.rows() == before


async def test_a_batch_writes_what_is_held_and_nothing_of_what_is_not(rig):
    run_ids = [await rig.trigger() for _ in range(3)]
    taken = await rig.claim(rig.one, 3)
    await rig.flow.cancel(run_ids[1], rig.store)

    held = await settling.commit(
        rig.db, [RunWrite(c.fence, (STEP,), Ended(RunStatus.SUCCESS, output="1")) for c in taken]
    )

    assert held == {taken[0].fence, taken[2].fence}
    assert [await rig.status(run_id) for run_id in run_ids] == ["SUCCESS", "CANCELLED", "SUCCESS"]
    assert not await rig.flow.steps(run_ids[1], rig.store)


# -- cancelled while it runs -----------------------------------------------------------------------------


@pytest.fixture
def config(config):
    return config.with_changes(lease_seconds=1)


@pytest.fixture
async def flow(live_store):
    await live_store.create_workflow("flow")
    return pgqrs.workflow("flow")


async def stopped(worker, polling):
    worker.stop()
    await asyncio.wait_for(polling, 20)


@pytest.mark.row("B8.1")
async def test_a_cancelled_run_is_told_at_the_next_heartbeat(live_store, flow):
    begun, seen = asyncio.Event(), asyncio.Event()
    later = []

    async def handler(ctx):
        try:
            await ctx.step("long", long)
        finally:
            seen.set()
        later.append(await ctx.step("later", lambda: 1))

    async def long():
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            later.append("cancelled")
            raise

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    run_id = await flow.trigger(None).execute(live_store)
    await begun.wait()
    await flow.cancel(run_id, live_store, reason="enough")
    await asyncio.wait_for(seen.wait(), 10)
    await stopped(worker, polling)
    run = await flow.get_run(run_id, live_store)

    assert (run.status, run.last_error) == ("CANCELLED", "enough")
    assert later == ["cancelled"]
    assert await run.steps() == []


async def test_a_cancelled_run_is_told_at_its_next_step(live_store, flow):
    seen = []
    ended = asyncio.Event()

    async def handler(ctx):
        try:
            await ctx.step("one", lambda: 1)
            await flow.cancel(ctx.run_id, live_store)
            for n in itertools.count():
                await ctx.step(f"more {n}", lambda: 1)
                seen.append(n)
        except asyncio.CancelledError:
            # The step's checkpoint is refused, unless the heartbeat has heard of it before.
            seen.append("told")
            raise
        finally:
            ended.set()

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    run_id = await flow.trigger(None).execute(live_store)
    await ended.wait()
    await stopped(worker, polling)
    run = await flow.get_run(run_id, live_store)

    assert run.status == "CANCELLED"
    assert seen == ["told"]
    assert [s.step_id for s in await run.steps()] == ["one"]


async def test_a_step_in_flight_in_another_branch_ends_when_the_run_is_lost(live_store, flow):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(ctx):
        async def notices():
            await begun.wait()
            await flow.cancel(ctx.run_id, live_store)
            await ctx.step("short", lambda: 1)

        await asyncio.gather(ctx.step("long", long), notices())

    async def long():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).grace(0).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    await flow.trigger(None).execute(live_store)
    await begun.wait()

    # Three leases: a heartbeat comes every third of one.
    await asyncio.wait_for(ended.wait(), 3)
    await stopped(worker, polling)


# -- one at a time ---------------------------------------------------------------------------------------


async def test_two_workers_never_execute_the_same_run_at_once(live_store, flow):
    """Workers come and go, each with a short lease, and hand back what they have not finished."""
    at_work: Counter[int] = Counter()
    overlaps = []

    async def handler(ctx, n: int):
        for _ in range(3):
            await ctx.step("work", work, ctx.run_id)
        return n

    async def work(run_id):
        at_work[run_id] += 1
        if at_work[run_id] > 1:
            overlaps.append(run_id)
        try:
            for _ in range(20):
                await asyncio.sleep(0.001)
        finally:
            at_work[run_id] -= 1

    run_ids = await flow.trigger_many(range(30), max_attempts=2).execute(live_store)
    runs = [await flow.get_run(run_id, live_store) for run_id in run_ids]
    results = asyncio.gather(*(run.result(60) for run in runs))
    team = []
    for n in range(12):
        worker = await pgqrs.consumer(f"w{n}", 0, "flow").handler(handler).grace(0).create(live_store)
        team.append((worker, asyncio.create_task(worker.poll_forever())))
        if len(team) > 2:
            await stopped(*team.pop(0))
    done = await results
    for worker, polling in team:
        await stopped(worker, polling)

    assert done == list(range(30))
    assert not overlaps


async def test_what_was_only_leased_ahead_is_handed_back_at_once_and_uncounted(live_store, flow, monkeypatch):
    from pgqrs.engine.runs import slots

    monkeypatch.setattr(slots._Pace, "ahead", lambda _self, _most: 3)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(ctx):
        begun.set()
        await go_on.wait()

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(1).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    run_ids = await flow.trigger_many([None] * 4).execute(live_store)
    async with asyncio.timeout(20):
        await begun.wait()
        while [(await flow.get_run(each, live_store)).status for each in run_ids] != ["RUNNING"] * 4:
            await asyncio.sleep(0)
        worker.stop()
        # The one at work goes on; the others are there for anybody.
        while [(await flow.get_run(each, live_store)).status for each in run_ids[1:]] != ["PENDING"] * 3:
            await asyncio.sleep(0)
    go_on.set()
    await polling

    other = await pgqrs.consumer("other", 0, "flow").handler(lambda ctx: ctx.attempt).create(live_store)
    await other.run_until_idle()
    await other.close()
    done = [await flow.get_run(each, live_store) for each in run_ids]
    assert [(run.status, run.attempt) for run in done] == [("SUCCESS", 1)] * 4


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_run_that_was_handed_back_is_not_worked_on_any_more(live_store, flow, kind):
    begun, go_on = threading.Event(), threading.Event()
    after, ended = [], threading.Event()

    def plain(ctx):
        try:
            ctx.step("one", wait)
            ctx.step("two", lambda: after.append("two"))
        finally:
            ended.set()

    def wait():
        begun.set()
        go_on.wait(20)

    async def asynchronous(ctx):
        await ctx.step("one", wait_async)

    async def wait_async():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    handler = plain if kind == "plain" else asynchronous
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).grace(0).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    run_id = await flow.trigger(None).execute(live_store)
    await asyncio.to_thread(begun.wait, 20)

    await stopped(worker, polling)

    assert (await flow.get_run(run_id, live_store)).status == "PENDING"
    if kind == "async":
        assert ended.is_set(), "the body of a step goes on after its run was handed back"
        return
    # Nothing can stop a thread; but when it comes back it must not begin another step.
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 20)
    assert after == []


@pytest.mark.row("B2.8")
async def test_a_worker_that_is_cancelled_while_it_leases_hands_back_what_it_got(live_store, flow):
    run_id = await flow.trigger(None).execute(live_store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda: None).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())

    cancelling = faults.at("after", "claims.claim", lambda: polling.cancel() and None)
    with faults.injected(cancelling), pytest.raises(asyncio.CancelledError):
        await polling

    [[attempts, leased_by]] = await live_store.database.fetch(
        Query("message", f"select attempts, leased_by from pgqrs_messages where run_id = {run_id}")
    )
    assert (attempts, leased_by) == (0, None)


async def test_a_cancelled_worker_waits_for_the_outcomes_that_are_on_their_way(live_store, flow):
    run_id = await flow.trigger(None).execute(live_store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda: None).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())

    signed_off = asyncio.Event()

    async def cancel_and_take_long():
        polling.cancel()
        # It must not get that far while this is under way.
        await asyncio.wait([asyncio.ensure_future(signed_off.wait())], timeout=0.5)
        early.append(signed_off.is_set())

    early = []
    slow = faults.at("before", "settlement.commit", cancel_and_take_long)
    with faults.injected(slow), faults.injected(faults.at("before", "workers.stop", signed_off.set)):
        with pytest.raises(asyncio.CancelledError):
            await polling
        run = await flow.get_run(run_id, live_store)

    assert early == [False]
    assert run.status is RunStatus.SUCCESS


async def test_a_worker_that_stood_still_before_it_heard_of_its_lease_begins_nothing(live_store, flow, monkeypatch):
    begun = []
    running = time.monotonic

    def stand_still():
        monkeypatch.setattr(time, "monotonic", lambda: running() + live_store.config.lease_seconds)

    await flow.trigger(None).execute(live_store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda: begun.append(1)).create(live_store)
    with faults.injected(faults.at("after", "claims.claim", stand_still)):
        await worker.run_until_idle()
    await worker.close()

    assert begun == []


async def test_a_handler_that_raises_cancelled_error_uses_up_its_attempts(live_store, flow):
    passes = []

    async def handler(ctx):
        passes.append(ctx.attempt)
        if len(passes) > 20:
            raise pgqrs.PermanentError("it would go on for ever")
        raise asyncio.CancelledError

    run_id = await flow.trigger(None, max_attempts=1).execute(live_store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
    await worker.run_until_idle()
    await worker.close()
    run = await flow.get_run(run_id, live_store)

    assert passes == [1]
    assert run.status == "ERROR"
    assert run.last_error.startswith("CancelledError")


async def test_a_step_of_a_process_that_stood_still_before_its_body_does_not_begin(live_store, flow, monkeypatch):
    began = []
    running = time.monotonic

    async def body():
        began.append("late")

    async def handler(ctx):
        async def branch():
            await ctx.step("late", body)

        async def stand_still():
            monkeypatch.setattr(time, "monotonic", lambda: running() + live_store.config.lease_seconds)

        await asyncio.gather(branch(), stand_still())

    await flow.trigger().execute(live_store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
    await worker.run_until_idle()
    await worker.close()

    assert began == []


@pytest.mark.row("B2.4")
async def test_a_worker_whose_heartbeats_hang_stops_before_its_lease_runs_out(live_store):
    lost = threading.Event()
    heartbeat = Heartbeat(live_store.database, live_store.config, worker_id=1, lease_seconds=1)

    async def hang():
        await asyncio.Event().wait()

    with faults.injected(lambda point: hang() if point == ("before", "messages.renew") else None):
        began = time.monotonic()
        heartbeat.hold(1, 1, lost.set, run_id=1, lease_seconds=1)
        assert await asyncio.to_thread(lost.wait, 10)
        seconds = time.monotonic() - began
        await asyncio.to_thread(heartbeat.close)

    assert seconds < 1


@pytest.mark.parametrize("settling", [True, False])
async def test_a_run_whose_outcome_is_on_its_way_is_not_called_lost(live_store, settling):
    lost, beaten = threading.Event(), threading.Event()
    heartbeat = Heartbeat(live_store.database, live_store.config, worker_id=1, lease_seconds=30)
    # A message that is gone, as it is when the outcome has been recorded.
    with faults.injected(lambda point: beaten.set() if point == ("after", "messages.renew") else None):
        held = heartbeat.hold(999, 1, lost.set, run_id=7, lease_seconds=30)
        held.settling = settling
        # A hint about a run whose outcome is on its way is no reason to ask; one about another run is.
        heartbeat.hold(998, 1, run_id=8, lease_seconds=30)
        heartbeat.heard(frozenset({-7, -8}))
        assert await asyncio.to_thread(beaten.wait, 10)
        await asyncio.to_thread(heartbeat.close)

    assert lost.is_set() == (not settling)


# -- from outside ----------------------------------------------------------------------------------------


async def test_a_run_paused_in_its_last_attempt_goes_on_when_it_is_resumed(rig):
    run_id = await rig.trigger(max_attempts=1)
    await rig.claim(rig.one)
    await rig.flow.pause(run_id, rig.store)
    await rig.flow.resume(run_id, rig.store)

    ended = await claims.end_lost(rig.db, [rig.workflow.queue_id], error="{}", last_error="worker_lost")

    assert ended == []
    assert [claim.run_id for claim in await rig.claim(rig.other)] == [run_id]


@pytest.mark.parametrize("by", ["signal", "child"])
async def test_a_run_that_a_person_paused_waits_for_a_person(rig, by):
    run_id = await rig.trigger()
    [claim] = await rig.claim(rig.one)
    await claims.spawn(rig.db, claim.fence, STEP, rig.new_runs(parent_run_id=run_id))
    await rig.flow.pause(run_id, rig.store)

    if by == "signal":
        await rig.flow.signal(run_id, rig.store, "go")
        await rig.claim(rig.one)
    else:
        [child] = await rig.claim(rig.one)
        await settling.commit(rig.db, [RunWrite(child.fence, end=Ended(RunStatus.SUCCESS, output="1"))])
    taken = await rig.claim(rig.other)

    assert run_id not in [each.run_id for each in taken]
    assert await rig.status(run_id) == "PAUSED"


# -- PostgreSQL: transactions side by side ---------------------------------------------------------------


def held_open(rig, work):
    """A transaction that has done its work and waits: (its task, done its work, let it commit)."""
    worked, commit = asyncio.Event(), asyncio.Event()

    async def unit(db):
        result = await work(db)
        worked.set()
        await commit.wait()
        return result

    task = asyncio.create_task(rig.db.perform(unit, kind=Kind.UNIT, idempotent=True))
    return task, worked, commit


async def until_blocked_or_done(rig, task):
    """Until the other transaction waits for a lock of ours, or has not needed one."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    while not task.done() and not (await rig.db.fetch(Query("waiting", waiting)))[0][0]:
        await asyncio.sleep(0.01)


async def a_family(rig):
    """A parent at work with two children at work: their claims."""
    await rig.trigger()
    [parent] = await rig.claim(rig.one)
    for n in range(2):
        step = StepRecord(f"spawn#{n}", n, StepStatus.SUCCESS)
        await claims.spawn(rig.db, parent.fence, step, rig.new_runs(parent_run_id=parent.run_id))
    return parent, await rig.claim(rig.other, 2)


def success(claim):
    return [RunWrite(claim.fence, end=Ended(RunStatus.SUCCESS, output="1"))]


WAITS = Suspended(RunStatus.PAUSED, delay=3600, waiting_for="children", children=True)


@pytest.mark.backends("postgres")
async def test_two_last_children_that_end_at_once_wake_their_parent(rig):
    parent, (one, other) = await a_family(rig)
    await settling.commit(rig.db, [RunWrite(parent.fence, end=WAITS)])

    first, worked, commit = held_open(rig, lambda db: settling.commit(db, success(one)))
    await worked.wait()
    second = asyncio.create_task(settling.commit(rig.db, success(other)))
    await until_blocked_or_done(rig, second)
    commit.set()
    await asyncio.gather(first, second)

    assert [claim.run_id for claim in await rig.claim(rig.one)] == [parent.run_id]


@pytest.mark.row("B8.5")
@pytest.mark.backends("postgres")
async def test_a_child_that_ends_while_its_parent_begins_to_wait_wakes_it(rig):
    parent, (one, other) = await a_family(rig)
    await settling.commit(rig.db, success(one))

    ending, worked, commit = held_open(rig, lambda db: settling.commit(db, success(other)))
    await worked.wait()
    waiting = asyncio.create_task(settling.commit(rig.db, [RunWrite(parent.fence, end=WAITS)]))
    await until_blocked_or_done(rig, waiting)
    commit.set()
    await asyncio.gather(ending, waiting)

    assert [claim.run_id for claim in await rig.claim(rig.one)] == [parent.run_id]


@pytest.mark.backends("postgres")
async def test_a_child_that_has_ended_is_not_cancelled_with_its_parent(rig):
    parent, (one, _) = await a_family(rig)

    ending, worked, commit = held_open(rig, lambda db: settling.commit(db, success(one)))
    await worked.wait()
    cancelling = asyncio.create_task(transitions.cancel(rig.db, parent.run_id, reason=None))
    await until_blocked_or_done(rig, cancelling)
    commit.set()
    await asyncio.gather(ending, cancelling)

    assert await rig.status(one.run_id) == "SUCCESS"


@pytest.mark.backends("postgres")
async def test_a_claim_that_is_overtaken_by_a_pause_does_not_start_the_run(rig, lose_commit):
    """A claim is one statement; only one whose reply was lost finds its leases first, and starts them then."""
    run_id = await rig.trigger()

    async def overtake():
        await rig.flow.pause(run_id, rig.store, reason="by a person")

    lose_commit("claim_runs")
    with faults.injected(faults.at("after", "messages.lease", overtake)):
        await rig.claim(rig.one)

    run = await rig.flow.get_run(run_id, rig.store)
    assert (run.status, run.waiting_for) == ("PAUSED", "by a person")


@pytest.mark.row("B4.6")
@pytest.mark.backends("postgres")
async def test_a_signal_whose_reply_was_lost_is_consumed_once(rig, lose_commit):
    run_id = await rig.trigger()
    [claim] = await rig.claim(rig.one)
    for n in (1, 2):
        await rig.flow.signal(run_id, rig.store, "go", n)

    lose_commit("consume_signal")
    first = await claims.take_signal(rig.db, claim.fence, StepRecord("wait_for:go", 0, StepStatus.PAUSED), name="go")
    second = await claims.take_signal(
        rig.db, claim.fence, StepRecord("wait_for:go#2", 1, StepStatus.PAUSED), name="go"
    )

    assert (first, second) == ((True, ("1", None)), (True, ("2", None)))


@pytest.mark.row("B4.6")
@pytest.mark.backends("postgres")
async def test_children_whose_reply_was_lost_are_started_once(rig, lose_commit):
    await rig.trigger()
    [parent] = await rig.claim(rig.one)

    lose_commit("trigger_runs")
    spawned = await claims.spawn(rig.db, parent.fence, STEP, rig.new_runs(parent_run_id=parent.run_id))

    assert len((await rig.rows())["workflow_runs"]) == 2
    [step] = await rig.flow.steps(parent.run_id, rig.store)
    assert step.output == spawned
