"""Retention: what is old enough goes, with all that belongs to it, and nothing else does."""

from collections import Counter
from datetime import timedelta

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.queries import Query
from pgqrs.db.upkeep import retention as tables
from pgqrs.engine import janitor as module
from pgqrs.engine.janitor import Janitor
from rig.past import Past


@pytest.fixture
def past(store):
    return Past(store)


@pytest.fixture
def retention(store):
    return pgqrs.retention(store)


class Waiting:
    """A janitor that was told to go on in some seconds, and has waited for that long."""

    def __init__(self, store):
        self._time = 0.0
        self._janitor = Janitor(store.database, store.config, monotonic=lambda: self._time)

    async def turn(self):
        seconds = await self._janitor.turn()
        self.wait(seconds)
        return seconds

    def wait(self, seconds):
        self._time += seconds

    async def turn_too_early(self):
        self.wait(-0.001)
        seconds = await self._janitor.turn()
        self.wait(0.001)
        return seconds


async def left(past):
    return await past.left("workflow_runs", "run_id")


# -- policies --------------------------------------------------------------------------------------------


async def test_without_a_policy_nothing_is_deleted(past, retention):
    run_id = await past.run(age=10_000)

    report = await retention.apply()

    assert (report.total, report.counts) == (0, ())
    assert await left(past) == [run_id]


async def test_a_finished_run_goes_when_it_is_older_than_its_policy(store, clock, retention):
    await store.create_workflow("flow")
    run_id = await pgqrs.workflow("flow").trigger(1).execute(store)

    async def handler(ctx, params):
        return await ctx.step("one", lambda: params)

    worker = await pgqrs.consumer("w", 1, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    await retention.keep("runs", days=7)

    clock.advance(days=7, seconds=-1)
    early = await retention.apply()
    clock.advance(seconds=1)
    late = await retention.apply()

    assert (early.total, late.total) == (0, 1)
    with pytest.raises(pgqrs.RunNotFound):
        await pgqrs.workflow("flow").get_run(run_id, store)


async def test_a_run_takes_everything_along_that_belongs_to_it(past, retention):
    kept, _ = await past.run(age=1), await past.run(age=10)
    await retention.keep("runs", days=7)

    await retention.apply()

    assert await left(past) == [kept]
    for table in ("workflow_steps", "signals", "workflow_events", "run_attributes"):
        assert set(await past.left(table, "run_id")) == {kept}, table


async def test_a_run_that_has_not_ended_stays(past, retention):
    unfinished = [await past.run(status, age=100) for status in ("PENDING", "RUNNING", "PAUSED")]
    await past.run("CANCELLED", age=100)
    await retention.keep("runs", days=7)

    await retention.apply()

    assert await left(past) == unfinished


@pytest.mark.parametrize(
    ("policies", "stay"),
    [
        ([("", "", 5)], []),
        ([("", "", 5), ("", "ERROR", 50)], [("a", "ERROR"), ("b", "ERROR")]),
        ([("", "ERROR", 50), ("a", "", 5)], [("b", "SUCCESS"), ("b", "ERROR")]),
        ([("", "", 5), ("a", "", 50)], [("a", "SUCCESS"), ("a", "ERROR")]),
        ([("", "", 5), ("a", "", 50), ("a", "SUCCESS", 5)], [("a", "ERROR")]),
        ([("", "", 50), ("a", "", 50), ("", "ERROR", 50), ("a", "ERROR", 5)],
         [("a", "SUCCESS"), ("b", "SUCCESS"), ("b", "ERROR")]),
    ],
)  # fmt: skip
async def test_the_most_specific_policy_counts(past, retention, policies, stay):
    runs = {}
    for workflow in ("a", "b"):
        for status in ("SUCCESS", "ERROR"):
            runs[await past.run(status, workflow=workflow, age=10)] = (workflow, status)
    for workflow, status, days in policies:
        await retention.keep("runs", days=days, workflow=workflow, status=status)

    dry = await retention.apply(dry_run=True)
    report = await retention.apply()

    assert [runs[run_id] for run_id in await left(past)] == stay
    assert dry.total == report.total == 4 - len(stay)


async def test_a_policy_can_be_changed_and_forgotten(past, retention):
    run_id = await past.run(age=10)
    await retention.keep("runs", days=1, workflow="flow")
    await retention.keep("runs", timedelta(days=20), workflow="flow")
    assert [(p.workflow, p.keep.days) for p in await retention.policies()] == [("flow", 20)]

    assert await retention.forget("runs", workflow="flow")
    assert not await retention.forget("runs", workflow="flow")
    await retention.apply()

    assert await retention.policies() == []
    assert await left(past) == [run_id]


async def test_the_recommended_policies_leave_those_that_are_there_alone(store, retention):
    await retention.keep("runs", days=1, status="SUCCESS")

    policies = await retention.keep_recommended()

    assert {p.what for p in policies} == set(tables.KINDS)
    assert [p.keep.days for p in policies if p.status == "SUCCESS"] == [1]
    assert await retention.keep_recommended() == policies


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"what": "run", "days": 1}, "deleted_runs, archived_messages"),
        ({"what": "runs", "days": -1}, "days must be"),
        ({"what": "runs", "age": timedelta(days=-1)}, "age must be"),
        ({"what": "runs", "days": float("nan")}, "days must be"),
        ({"what": "runs", "age": 7}, "timedelta"),
        ({"what": "runs"}, "say how long"),
        ({"what": "runs", "age": timedelta(1), "days": 1}, "say how long"),
        ({"what": "runs", "days": 1, "status": "RUNNING"}, "SUCCESS, ERROR, CANCELLED"),
        ({"what": "runs", "days": 1, "status": "success"}, "SUCCESS, ERROR, CANCELLED"),
        ({"what": "events", "days": 1, "status": "ERROR"}, "leave out status"),
        ({"what": "events", "days": 1, "workflow": "flow"}, "leave out workflow"),
        ({"what": "runs", "days": 1, "workflow": "a b"}, "not allowed"),
        ({"what": "runs", "days": 1, "workflow": "flwo"}, "did you mean 'flow'"),
        ({"what": "archived_messages", "days": 1, "workflow": "flwo"}, "flow"),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused_with_the_way_out(store, retention, arguments, says):
    await store.create_workflow("flow")

    with pytest.raises(pgqrs.PgqrsError, match=says):
        await retention.keep(**arguments)

    assert await retention.policies() == []


# -- runs that must wait ---------------------------------------------------------------------------------


async def test_a_child_stays_until_its_parent_has_ended(past, retention):
    parent = await past.run("PAUSED", age=20)
    child = await past.run(age=20, parent=parent)
    await past.run(age=20, parent=await past.run("ERROR", age=1))
    await retention.keep("runs", days=7)

    report = await retention.apply()

    assert child in await left(past)
    assert [(each.count, each.held_back) for each in report.counts] == [(1, 1)]


async def test_the_children_of_a_deleted_parent_are_let_go_of(past, retention, store):
    parent = await past.run(age=20)
    child = await past.run("PENDING", age=1, parent=parent)
    await retention.keep("runs", days=7)

    await retention.apply()

    assert await left(past) == [child]
    assert (await pgqrs.workflow("flow").get_run(child, store)).parent_run_id is None


async def test_parent_and_children_may_go_together(past, retention):
    parent = await past.run(age=20)
    for _ in range(3):
        await past.run(age=20, parent=await past.run(age=20, parent=parent))
    await retention.keep("runs", days=7)

    await retention.apply()

    assert await left(past) == []


async def test_a_parent_of_too_many_children_for_one_batch_goes_later(past, retention, monkeypatch):
    monkeypatch.setattr(tables, "_MOST_CHILDREN", 2)
    parent = await past.run(age=20)
    children = [await past.run(age=1, parent=parent) for _ in range(3)]
    await retention.keep("runs", days=7)

    await retention.apply()
    assert await left(past) == [parent, *children]
    await retention.apply()
    assert await left(past) == children


async def test_a_run_stays_until_its_outbox_is_published_or_given_up(past, retention):
    unpublished, published, dead = [await past.run(age=10) for _ in range(3)]
    for run_id, state in ((unpublished, "waiting"), (published, "published"), (dead, "dead")):
        await past.outbox(run_id, state)
    await retention.keep("runs", days=7)

    dry = await retention.apply(dry_run=True)
    report = await retention.apply()

    assert await left(past) == [unpublished]
    assert [(each.count, each.held_back) for each in (*dry.counts, *report.counts)] == [(2, 1), (2, 1)]
    # They have a policy of their own.
    assert len(await past.left("outbox_events", "event_id")) == 3


async def test_what_must_wait_does_not_keep_the_others(past, retention, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 2)
    parent = await past.run("PAUSED", age=20)
    children = [await past.run(age=20, parent=parent) for _ in range(5)]
    for _ in range(5):
        await past.run(age=20)
    await retention.keep("runs", days=7)

    await retention.apply()

    assert await left(past) == [parent, *children]


# -- soft-deleted runs -----------------------------------------------------------------------------------


async def test_a_soft_deleted_run_goes_in_any_status_with_its_message(past, retention):
    for status in ("PENDING", "RUNNING", "PAUSED", "SUCCESS"):
        await past.run(status, age=30, deleted=10)
    kept = await past.run("PENDING", age=30, deleted=1)
    undeleted = await past.run("PENDING", age=30)
    await retention.keep("deleted_runs", days=7)

    report = await retention.apply()

    assert report.total == 4
    assert await left(past) == [kept, undeleted]
    assert await past.left("messages", "run_id") == [kept, undeleted]


async def test_soft_deleted_runs_are_kept_by_their_own_policy_where_there_is_one(past, retention):
    await past.run(age=10, deleted=1, workflow="a")
    await past.run(age=10, deleted=1, workflow="b")
    await retention.keep("runs", days=7)
    await retention.keep("deleted_runs", days=30, workflow="a")

    report = await retention.apply()

    assert [each.count for each in report.counts] == [0, 1]
    assert await left(past) == [1]


async def test_whoever_executes_a_run_that_is_deleted_loses_its_lease(store, past, retention):
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger(1).execute(store)
    recorded = []

    async def handler(ctx, params):
        await store.database.execute(Query("delete", "update pgqrs_workflow_runs set deleted_at = {now}"))
        await retention.keep("deleted_runs", seconds=0)
        await retention.apply()
        recorded.append(await ctx.step("late", lambda: 1))

    worker = await pgqrs.consumer("w", 1, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert recorded == []
    assert await left(past) == []
    assert await past.left("workflow_steps", "run_id") == []


# -- everything else -------------------------------------------------------------------------------------


async def test_events_go_by_age_also_those_of_runs_that_stay(past, retention):
    run_id = await past.run("PAUSED", age=100)
    await past.event(run_id, age=50)
    await past.event(run_id, age=5)
    await retention.keep("events", days=30)

    dry = await retention.apply(dry_run=True)
    report = await retention.apply()

    assert (dry.total, report.total) == (2, 2)
    assert len(await past.left("workflow_events", "event_id")) == 1


async def test_only_published_outbox_events_go(past, retention):
    run_id = await past.run("PAUSED", age=1)
    kept = [
        await past.outbox(run_id, state, age=age) for state, age in (("published", 1), ("waiting", 99), ("dead", 99))
    ]
    await past.outbox(run_id, "published", age=10)
    await retention.keep("outbox", days=7)

    report = await retention.apply()

    assert report.total == 1
    assert await past.left("outbox_events", "event_id") == kept


async def test_outbox_events_that_were_given_up_go_by_hand(past, retention):
    run_id = await past.run("PAUSED", age=1)
    kept = [await past.outbox(run_id, state, age=age) for state, age in (("published", 99), ("dead", 1))]
    await past.outbox(run_id, "dead", age=10)

    assert await retention.delete_dead_outbox_events(days=7) == 1
    assert await past.left("outbox_events", "event_id") == kept


async def test_archived_messages_go_by_queue(past, retention):
    for queue in ("fast", "slow"):
        for age in (1, 10, 100):
            await past.archived(queue, age=age)
    await retention.keep("archived_messages", days=5)
    await retention.keep("archived_messages", days=50, workflow="slow")

    dry = await retention.apply(dry_run=True)
    report = await retention.apply()

    assert [each.count for each in dry.counts] == [each.count for each in report.counts] == [2, 1]
    assert await past.left("archived_messages", "message_id") == [1_000_001, 1_000_004, 1_000_005]


async def test_stopped_and_silent_workers_go(past, retention):
    await past.worker("STOPPED", age=10)
    await past.worker("READY", age=10)
    kept = [await past.worker("STOPPED", age=1), await past.worker("READY", age=1)]
    await retention.keep("workers", days=7)

    await retention.apply()

    assert await past.left("workers", "worker_id") == kept


async def test_a_worker_stays_that_holds_a_lease_or_executes_a_run(past, retention):
    holding, executing, expired = [await past.worker("READY", age=10) for _ in range(3)]
    await past.leased(holding, for_seconds=60)
    await past.run("RUNNING", worker_id=executing)
    await past.leased(expired, for_seconds=-60)
    await retention.keep("workers", days=7)

    report = await retention.apply()

    assert await past.left("workers", "worker_id") == [holding, executing]
    assert report.counts[0].held_back == 2


async def test_a_worker_that_lives_stays_however_short_the_policy(store, clock, past, retention):
    await store.create_queue("tasks")
    consumer = await store.consumer("tasks")
    await retention.keep("workers", seconds=1)
    clock.advance(600)

    await retention.apply()

    assert await past.left("workers", "worker_id") == [consumer.worker_id]


async def test_the_slots_that_still_mean_something_stay(past, retention):
    # 1: the last one is 50 days back: only what lies before it may go.
    await past.schedule(1, last=50)
    for age in (100, 80, 60, 50, *range(31, 45)):
        await past.slot(1, age=age)
    # 2: two old ones, one waiting, one whose run goes on.
    await past.schedule(2, last=1)
    running = await past.run("RUNNING", age=90)
    for age, state, run_id in (
        (100, "skipped", None), (99, "queued", None), (98, "fired", running), (97, "missed", None),
        *((age, "skipped", None) for age in range(10)),
    ):  # fmt: skip
        await past.slot(2, age=age, state=state, run_id=run_id)
    # 3: a schedule that is gone.
    for age in (100, 1):
        await past.slot(3, age=age)
    # 4: old ones only; the ten newest of them stay.
    await past.schedule(4, last=1)
    for age in range(100, 111):
        await past.slot(4, age=age)
    await retention.keep("schedule_slots", days=30)

    dry = await retention.apply(dry_run=True)
    await retention.apply()

    assert Counter(await past.left("schedule_slots", "schedule_id")) == {1: 15, 2: 12, 3: 1, 4: 10}
    assert dry.total == 3 + 2 + 1 + 1


async def test_the_slot_of_a_deleted_run_stays(past, retention):
    run_id = await past.run(age=100)
    await past.schedule(1, last=1)
    await past.slot(1, age=100, state="fired", run_id=run_id)
    await retention.keep("runs", days=7)

    await retention.apply()

    assert await left(past) == []
    assert await past.left("schedule_slots", "run_id") == [run_id]


# -- counting, and by hand -------------------------------------------------------------------------------


async def test_a_dry_run_deletes_nothing(past, retention):
    run_id = await past.run(age=10)
    await retention.keep_recommended()

    report = await retention.apply(dry_run=True)

    assert (report.dry_run, report.total) == (True, 1)
    assert await left(past) == [run_id]


async def test_a_dry_run_counts_only_so_far_and_says_so(past, retention, monkeypatch):
    monkeypatch.setattr(module, "COUNT_AT_MOST", 4)
    for status in ("SUCCESS", "ERROR"):
        for _ in range(3):
            await past.run(status, age=10)
    await retention.keep("runs", days=7)

    report = await retention.apply(dry_run=True)

    assert [(each.count, each.capped) for each in report.counts] == [(3, True)]
    assert str(report) == "runs: more than 3"


async def test_runs_can_be_deleted_once_whatever_the_policies_say(past, retention):
    other = await past.run(age=10, workflow="other")
    failed = await past.run("ERROR", age=10)
    fresh = await past.run(age=1)
    await past.run(age=10)
    await retention.keep("runs", days=99)

    dry = await retention.purge_runs(workflow="flow", status="SUCCESS", days=7)
    report = await retention.purge_runs(workflow="flow", status="SUCCESS", days=7, dry_run=False)

    assert (dry.total, report.total) == (1, 1)
    assert await left(past) == [other, failed, fresh]


@pytest.mark.row("B8.13")
async def test_whoever_waits_for_a_run_that_is_deleted_is_told(live_store):
    await live_store.create_workflow("flow")
    run_id = await pgqrs.workflow("flow").trigger(1).execute(live_store)
    run = await pgqrs.workflow("flow").get_run(run_id, live_store)
    await pgqrs.workflow("flow").cancel(run_id, live_store)
    await pgqrs.retention(live_store).purge_runs(workflow="flow", seconds=0, dry_run=False)

    with pytest.raises(pgqrs.RunNotFound):
        await run.result(timeout=10)


# -- the janitor -----------------------------------------------------------------------------------------


async def test_a_janitor_deletes_one_batch_in_a_turn_and_then_rests(store, past, retention, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 2)
    for _ in range(5):
        await past.run(age=10)
    await retention.keep("runs", days=7)
    janitor = Waiting(store)

    counts, waits = [], []
    for _ in range(4):
        waits.append(await janitor.turn())
        counts.append(len(await left(past)))

    assert counts == [3, 1, 0, 0]
    assert max(waits[:3]) < 10
    assert 45 < waits[3] < 75


async def test_a_changed_policy_counts_from_the_next_batch_on(store, past, retention, clock, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1)
    for _ in range(4):
        await past.run(age=10)
    await retention.keep("runs", days=7)
    janitor = Waiting(store)
    await janitor.turn()

    await retention.keep("runs", days=20, workflow="flow")
    await janitor.turn()
    assert len(await left(past)) == 3
    clock.advance(61)
    await retention.forget("runs", workflow="flow")
    await janitor.turn()
    assert len(await left(past)) == 2
    await retention.forget("runs")
    await janitor.turn()
    assert len(await left(past)) == 2


async def test_a_range_that_fails_does_not_keep_the_others(store, past, retention):
    run_id = await past.run("PAUSED", age=10)
    await past.outbox(run_id)
    await past.run(age=10)
    await retention.keep("runs", days=7)
    await retention.keep("outbox", days=7)
    janitor = Waiting(store)

    def fail():
        raise pgqrs.PgqrsError("no")

    with faults.injected(faults.at("sql", "delete_outbox", fail, times=99)):
        with pytest.raises(pgqrs.PgqrsError, match="no"):
            await janitor.turn()
        await janitor.turn()

    assert await left(past) == [run_id]


async def test_a_janitor_with_nothing_to_do_asks_one_question(store, past, retention):
    await past.run(age=1)
    await retention.keep("runs", days=7)
    janitor = Waiting(store)

    with faults.recorded() as points:
        await janitor.turn()

    # A hint of what was triggered above may still be on its way.
    assert [point.name for point in points if point.phase == "sql" and point.name != "notify"] == ["due_ranges"]


async def test_one_janitor_works_while_the_others_leave_it_to_that_one(
    store, connect, past, retention, clock, monkeypatch
):
    monkeypatch.setattr(module, "BATCH", 1)
    for _ in range(4):
        await past.run(age=10)
    await retention.keep("runs", days=7)
    one, other = Waiting(store), Waiting(store)

    await one.turn()
    waits = await other.turn()
    assert waits > 45
    assert len(await left(past)) == 3
    # The first one is gone: a minute later the other goes on.
    clock.advance(61)
    await other.turn()

    assert len(await left(past)) == 2


async def test_a_hint_for_others_does_not_cut_a_pause_short(store, past, retention, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1)
    for _ in range(2):
        await past.run(age=10)
    await retention.keep("runs", days=7)
    janitor = Waiting(store)
    await janitor.turn()

    assert await janitor.turn_too_early() == pytest.approx(0.001)
    assert len(await left(past)) == 1


async def test_what_had_to_wait_is_looked_at_again_after_an_hour(store, past, retention, clock):
    parent = await past.run("PAUSED", age=20)
    await past.run(age=20, parent=parent)
    await retention.keep("runs", days=7)
    janitor = Waiting(store)
    await janitor.turn()
    await pgqrs.workflow("flow").cancel(parent, store)

    clock.advance(61)
    await janitor.turn()
    assert len(await left(past)) == 2
    clock.advance(3600)
    janitor.wait(3600)
    await janitor.turn()

    assert await left(past) == [parent]
