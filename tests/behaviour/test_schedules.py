"""Schedules: every policy, every absence, whoever looks, wherever somebody dies."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import pgqrs
from pgqrs import blocking, faults
from pgqrs.api.schedules import check_declared, declare
from pgqrs.db.queries import Query
from pgqrs.engine.definitions.handlers import Handler, WorkflowOptions
from pgqrs.engine.schedules.scheduler import Scheduler

# What the hand-set clock says first.
START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
async def schedules(store):
    await store.create_workflow("flow")
    return pgqrs.schedules(store)


@pytest.fixture
def scheduler(store):
    return Scheduler(store.database, store.config)


def minute(n):
    return START + timedelta(minutes=n)


async def runs(store):
    """Oldest first."""
    return (await pgqrs.workflow("flow").runs(store, limit=2000))[::-1]


async def history(schedules, name="s"):
    """(minute, state) of each slot, oldest first."""
    slots = await schedules.slots(name, limit=2000)
    return [((slot.slot_at - START).total_seconds() / 60, str(slot.state)) for slot in reversed(slots)]


async def finish(store):
    """Executes what can be executed now."""
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda: None).create(store)
    await worker.run_until_idle()
    await worker.close()


# -- cadences --------------------------------------------------------------------------------------------


async def test_a_cron_schedule_triggers_a_run_with_its_params(schedules, scheduler, store, clock):
    await schedules.create("s", "flow", cron="0 9 * * *", timezone="Europe/Berlin", params={"n": 1}, priority=3)

    clock.advance(hours=7, minutes=59)
    early = await scheduler.fire_due()
    clock.advance(minutes=1)
    fired = await scheduler.fire_due()

    [run] = await runs(store)
    assert (early, fired) == (0, 1)
    assert (run.input, run.priority) == ({"n": 1}, 3)
    assert run.attributes == {"schedule": "s", "slot": "2030-01-01T08:00:00+00:00"}
    schedule = await schedules.get("s")
    assert schedule.last_slot_at == datetime(2030, 1, 1, 8, tzinfo=UTC)
    assert schedule.next_slot_at == datetime(2030, 1, 2, 8, tzinfo=UTC)
    assert schedule.last_run_id == run.run_id


async def test_intervals_do_not_drift(schedules, scheduler, clock):
    clock.advance(0.5)
    await schedules.create("s", "flow", every=60, overlap="allow")

    for _ in range(5):
        clock.advance(61)
        await scheduler.fire_due()

    slots = [slot.slot_at for slot in await schedules.slots("s")]
    assert slots == [START + timedelta(seconds=0.5 + 60 * n) for n in (5, 4, 3, 2, 1)]


async def test_a_one_off_fires_once(schedules, scheduler, store, clock):
    await schedules.create("s", "flow", at=minute(5))

    clock.advance(minutes=5)
    await scheduler.fire_due()
    clock.advance(days=400)
    await scheduler.fire_due()

    assert len(await runs(store)) == 1
    assert (await schedules.get("s")).next_slot_at is None
    assert await schedules.next("s") == []


async def test_an_idle_turn_is_one_query_and_lasts_until_the_next_slot(schedules, scheduler, clock):
    await schedules.create("s", "flow", cron="* * * * *")
    clock.advance(57)

    with faults.recorded() as points:
        seconds = await scheduler.turn()

    # The hint of the creation may be on its way still.
    assert [point.name for point in points if point.phase == "sql" and point.name != "notify"] == ["look"]
    assert seconds == pytest.approx(3)
    clock.advance(4)
    assert await scheduler.turn() == 0
    assert await scheduler.turn() == 10


# -- creating and changing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cron": "61 * * * *"}, "cron '61 .* cannot be read"),
        ({"cron": "0 0 30 2 *"}, "'0 0 30 2 [*]' never matches"),
        ({"cron": "* * * * *", "timezone": "Europe/Berlni"}, "did you mean 'Europe/Berlin'"),
        ({"cron": "* * * * *", "every": 5}, "exactly one of"),
        ({}, "exactly one of"),
        ({"every": 0.5}, "every must be"),
        ({"every": -1}, "every must be"),
        ({"every": float("nan")}, "every must be"),
        ({"at": datetime(2031, 1, 1)}, "time zone"),  # noqa: DTZ001 - naive on purpose
        ({"at": datetime(9999, 1, 1, tzinfo=UTC)}, "years 1970 and 2970"),
        ({"at": minute(-1)}, "no slot in the future"),
        ({"cron": "* * * * *", "overlap": "maybe"}, "overlap must be one of skip, queue, cancel, allow"),
        ({"cron": "* * * * *", "catch_up": "some"}, "catch_up must be one of none, last, all"),
        ({"cron": "* * * * *", "catch_up_limit": 0}, "catch_up_limit"),
        ({"cron": "* * * * *", "jitter": -1}, "jitter"),
        ({"cron": "* * * * *", "max_attempts": 0}, "max_attempts"),
        ({"cron": "* * * * *", "attributes": []}, "attributes"),
    ],
)
async def test_what_cannot_be_right_is_refused_before_anything_is_written(schedules, given, message):
    with pytest.raises(pgqrs.ConfigError, match=message):
        await schedules.create("s", "flow", **given)

    assert await schedules.list() == []


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "", "x" * 300])
async def test_a_workflow_of_an_impossible_name_is_refused_before_the_database_is_asked(schedules, name):
    with pytest.raises(pgqrs.ConfigError, match="workflow name"):
        await schedules.create("daily", name, cron="@daily")


async def test_an_unknown_workflow_or_schedule_is_named(schedules):
    with pytest.raises(pgqrs.WorkflowNotFound, match="did you mean 'flow'"):
        await schedules.create("s", "flwo", every=60)
    await schedules.create("nightly", "flow", every=60)
    for verb in (schedules.get, schedules.pause, schedules.resume, schedules.trigger, schedules.delete):
        with pytest.raises(pgqrs.ScheduleNotFound, match="did you mean 'nightly'"):
            await verb("nigthly")


async def test_creating_the_same_again_changes_nothing(schedules, clock):
    first = await schedules.create("s", "flow", every=60, params=[1], attributes={"a": 1}, jitter=2)
    clock.advance(30)

    again = await schedules.create("s", "flow", every=60.0, params=[1], attributes={"a": 1}, jitter=2)

    assert again == first


@pytest.mark.row("B6.8")
async def test_another_cadence_counts_from_the_change_on(schedules, scheduler, clock):
    await schedules.create("s", "flow", cron="0 * * * *")
    clock.advance(minutes=90)
    changed = await schedules.create("s", "flow", cron="*/20 * * * *")
    await scheduler.fire_due()
    before = await history(schedules)
    clock.advance(minutes=10)
    await scheduler.fire_due()

    assert changed.next_slot_at == minute(100)
    assert before == []
    assert await history(schedules) == [(100, "fired")]


async def test_another_policy_does_not_lose_what_is_due(schedules, scheduler, clock):
    await schedules.create("s", "flow", cron="* * * * *")
    clock.advance(minutes=1)

    await schedules.create("s", "flow", cron="* * * * *", overlap="allow")
    await scheduler.fire_due()

    assert await history(schedules) == [(1, "fired")]


async def test_a_change_keeps_the_pause(schedules, scheduler, clock):
    await schedules.create("s", "flow", cron="* * * * *")
    await schedules.pause("s")
    changed = await schedules.create("s", "flow", cron="*/2 * * * *")
    clock.advance(minutes=10)

    assert changed.is_paused
    assert await scheduler.fire_due() == 0


@pytest.mark.row("B6.8")
async def test_a_schedule_deleted_while_due_triggers_nothing(schedules, scheduler, clock):
    await schedules.create("s", "flow", cron="* * * * *")
    clock.advance(minutes=1)

    await schedules.delete("s")

    assert await scheduler.fire_due() == 0
    assert await schedules.list() == []


async def test_one_made_anew_under_an_old_name_starts_anew(schedules, scheduler, clock):
    await schedules.create("s", "flow", cron="* * * * *")
    clock.advance(minutes=1)
    await scheduler.fire_due()
    await schedules.delete("s")
    clock.advance(-60)
    await schedules.create("s", "flow", cron="* * * * *")
    clock.advance(60)

    assert await scheduler.fire_due() == 1
    assert await history(schedules) == [(1, "fired")]


async def test_the_next_slots_can_be_seen_before_they_come(schedules):
    await schedules.create("s", "flow", cron="*/15 * * * *")

    assert await schedules.next("s", 3) == [minute(15), minute(30), minute(45)]


# -- pause, resume, trigger now --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch_up", "expected"), [(False, []), (True, [(8, "missed"), (9, "missed"), (10, "fired")])]
)
async def test_what_passed_during_a_pause_is_made_up_for_only_on_request(
    schedules, scheduler, clock, catch_up, expected
):
    await schedules.create("s", "flow", cron="8-10 * * * *", catch_up="last")
    await schedules.pause("s")
    clock.advance(minutes=10, seconds=30)
    while_paused = await scheduler.fire_due()

    await schedules.resume("s", catch_up=catch_up)
    await scheduler.fire_due()

    assert while_paused == 0
    assert await history(schedules) == expected
    assert (await schedules.get("s")).next_slot_at == minute(68)


async def test_a_run_can_be_triggered_now_beside_the_slots(schedules, scheduler, store, clock):
    await schedules.create("s", "flow", cron="* * * * *", params="p", jitter=30)
    await schedules.pause("s")

    run_id = await schedules.trigger("s")
    await schedules.resume("s")
    clock.advance(minutes=1)
    await scheduler.fire_due()

    first, second = await runs(store)
    assert (first.run_id, first.input, first.attributes) == (run_id, "p", {"schedule": "s"})
    assert second.attributes["slot"] == minute(1).isoformat()
    assert await history(schedules) == [(1, "fired")]


# -- overlap ---------------------------------------------------------------------------------------------


async def twice(schedules, scheduler, clock, overlap):
    await schedules.create("s", "flow", cron="* * * * *", overlap=overlap)
    for _ in range(2):
        clock.advance(minutes=1)
        await scheduler.fire_due()


async def test_skip_lets_a_slot_go_while_the_run_before_is_not_done(schedules, scheduler, store, clock):
    await twice(schedules, scheduler, clock, "skip")
    await finish(store)
    clock.advance(minutes=1)
    await scheduler.fire_due()

    assert await history(schedules) == [(1, "fired"), (2, "skipped"), (3, "fired")]
    assert len(await runs(store)) == 2


async def test_allow_triggers_every_slot(schedules, scheduler, store, clock):
    await twice(schedules, scheduler, clock, "allow")

    assert await history(schedules) == [(1, "fired"), (2, "fired")]
    assert len(await runs(store)) == 2


async def test_cancel_ends_the_run_before(schedules, scheduler, store, clock):
    await twice(schedules, scheduler, clock, "cancel")

    first, second = await runs(store)
    assert (first.status, first.last_error) == ("CANCELLED", "schedule 's' came round again")
    assert second.status == "PENDING"
    assert await history(schedules) == [(1, "fired"), (2, "fired")]


async def test_cancel_triggers_only_the_last_of_several_at_once(schedules, scheduler, store, clock):
    await schedules.create("s", "flow", cron="* * * * *", overlap="cancel", catch_up="all")
    clock.advance(minutes=3)

    await scheduler.fire_due()

    assert await history(schedules) == [(1, "skipped"), (2, "skipped"), (3, "fired")]
    assert [run.status for run in await runs(store)] == ["PENDING"]


async def test_queue_triggers_in_order_when_the_run_before_has_ended(schedules, scheduler, store, clock):
    await twice(schedules, scheduler, clock, "queue")
    clock.advance(minutes=1)
    await scheduler.fire_due()
    seen = [await history(schedules)]
    wait = await scheduler.turn()

    for _ in range(3):
        await pgqrs.workflow("flow").cancel((await schedules.get("s")).last_run_id, store)
        await scheduler.fire_due()
        seen.append(await history(schedules))

    assert seen == [
        [(1, "fired"), (2, "queued"), (3, "queued")],
        [(1, "fired"), (2, "fired"), (3, "queued")],
        [(1, "fired"), (2, "fired"), (3, "fired")],
        [(1, "fired"), (2, "fired"), (3, "fired")],
    ]
    assert wait == 1
    assert [run.attributes["slot"] for run in await runs(store)] == [minute(n).isoformat() for n in (1, 2, 3)]


async def test_a_queue_of_slots_is_bounded(schedules, scheduler, clock, monkeypatch):
    monkeypatch.setattr("pgqrs.db.tables.schedules.MOST_QUEUED", 2)
    await schedules.create("s", "flow", cron="* * * * *", overlap="queue", catch_up="all")
    clock.advance(minutes=5)

    await scheduler.fire_due()

    assert [state for _, state in await history(schedules)] == ["fired", "queued", "queued", "skipped", "skipped"]


# -- catching up -----------------------------------------------------------------------------------------


@pytest.mark.row("B6.6")
@pytest.mark.parametrize("absent", [1, 10, 10_000])
@pytest.mark.parametrize(("catch_up", "limit"), [("none", 1), ("last", 1), ("all", 20)])
async def test_an_absence_is_made_up_for_as_the_policy_says(
    schedules, scheduler, store, clock, absent, catch_up, limit
):
    await schedules.create("s", "flow", cron="* * * * *", overlap="allow", catch_up=catch_up, catch_up_limit=20)
    # The newest slot is half a minute old: on time, for `none`.
    clock.advance(minutes=absent, seconds=30)

    fired = await scheduler.fire_due()

    slots = await schedules.slots("s", limit=1000)
    assert fired == len(await runs(store)) == min(limit, absent)
    assert [str(slot.state) for slot in slots] == ["fired"] * fired + ["missed"] * min(100, absent - fired)
    assert slots[0].slot_at == minute(absent)
    assert (await schedules.get("s")).next_slot_at == minute(absent + 1)
    assert await scheduler.fire_due() == 0


async def test_none_lets_go_of_a_slot_that_is_over_a_minute_old(schedules, scheduler, clock):
    await schedules.create("s", "flow", cron="0 * * * *", catch_up="none")
    clock.advance(minutes=61, seconds=1)

    await scheduler.fire_due()

    assert await history(schedules) == [(60, "missed")]


@pytest.mark.row("B6.6")
async def test_a_thousand_slots_are_made_up_for_at_once(schedules, scheduler, store, clock):
    await schedules.create("s", "flow", every=1, overlap="allow", catch_up="all", catch_up_limit=1000)
    clock.advance(10_000)

    assert await scheduler.fire_due() == 1000
    assert len(await runs(store)) == 1000


# -- jitter ----------------------------------------------------------------------------------------------


async def test_jitter_delays_each_run_by_a_share_of_its_own(schedules, scheduler, store, clock):
    from pgqrs.db.tables.schedules import jitter

    made = [await schedules.create(name, "flow", cron="* * * * *", jitter=50) for name in ("s", "t")]
    clock.advance(minutes=1)
    await scheduler.fire_due()

    query = Query("delays", "select {seconds visible_after since enqueued_at} from pgqrs_messages")
    delays = sorted(row[0] for row in await store.database.fetch(query))

    assert len(set(delays)) == 2
    assert all(0 < delay < 50 for delay in delays)
    # From the name and the slot alone: whoever fires it, it is the same.
    assert delays == pytest.approx(sorted(jitter(each, minute(1)) for each in made), abs=0.01)


# -- many who look, some who die -------------------------------------------------------------------------


@pytest.mark.row("B6.7")
async def test_two_schedulers_at_once_trigger_each_slot_once(schedules, store, connect, clock, config):
    other = store if config.backend == "turso" else await connect()
    for n in range(10):
        await schedules.create(f"s{n}", "flow", cron="* * * * *", overlap="allow")
    both = [Scheduler(each.database, each.config) for each in (store, other)]

    counts = []
    for _ in range(5):
        clock.advance(minutes=1)
        await asyncio.gather(*(each.fire_due() for each in both for _ in range(3)))
        # One may have found all of them held by others, who then let go without having been done.
        await both[0].fire_due()
        counts.append(len(await runs(store)))

    assert counts == [10, 20, 30, 40, 50]
    assert len({(run.attributes["schedule"], run.attributes["slot"]) for run in await runs(store)}) == 50


@pytest.mark.parametrize("statement", ["insert_slots", "insert_runs", "insert_attributes", "settle_slots", "move_on"])
async def test_a_death_before_the_commit_leaves_nothing_half_written(schedules, scheduler, store, clock, statement):
    await schedules.create("s", "flow", cron="* * * * *")
    clock.advance(minutes=1)

    def die():
        raise asyncio.CancelledError

    if statement == "insert_runs" and store.database.dialect.is_postgres:
        statement = "trigger_runs"
    with faults.injected(faults.at("sql", statement, die)), pytest.raises(asyncio.CancelledError):
        await scheduler.fire_due()
    left = (await runs(store), await history(schedules))
    again = await scheduler.fire_due()

    assert left == ([], [])
    assert again == 1
    assert await history(schedules) == [(1, "fired")]


@pytest.mark.row("B6.3")
async def test_a_clock_that_goes_back_repeats_nothing_and_loses_nothing(schedules, scheduler, store, clock):
    await schedules.create("s", "flow", cron="* * * * *", overlap="allow", catch_up="all")
    clock.advance(minutes=3)
    await scheduler.fire_due()

    clock.advance(minutes=-2)
    for _ in range(4):
        await scheduler.fire_due()
        clock.advance(minutes=1)

    assert await history(schedules) == [(1, "fired"), (2, "fired"), (3, "fired"), (4, "fired")]
    assert len(await runs(store)) == 4


async def test_a_slot_on_record_does_not_fire_again_when_it_is_counted_again(schedules, scheduler, store, clock):
    await schedules.create("s", "flow", cron="* * * * *", overlap="allow", catch_up="all")
    clock.advance(minutes=3)
    await scheduler.fire_due()

    # The clock goes back, and a change counts from a time that was before.
    clock.advance(minutes=-2)
    await schedules.create("s", "flow", cron="*/1 * * * *", overlap="allow", catch_up="all")
    clock.advance(minutes=3)
    await scheduler.fire_due()

    assert await history(schedules) == [(1, "fired"), (2, "fired"), (3, "fired"), (4, "fired")]
    assert len(await runs(store)) == 4


# -- what cannot fire ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("workflow = 'gone'", "WorkflowNotFound: no workflow named 'gone'"),
        ("cron = 'nonsense'", "ConfigError: cron 'nonsense' cannot be read"),
        ("timezone = 'Mars/Olympus'", "ConfigError: there is no time zone 'Mars/Olympus'"),
        ("options = '[1]'", "SerializationError"),
    ],
)
async def test_one_that_cannot_fire_says_why_and_does_not_stop_the_others(
    schedules, scheduler, store, clock, damage, reason
):
    for name in ("a", "b", "c"):
        await schedules.create(name, "flow", cron="* * * * *")
    await store.database.execute(Query("damage", f"update pgqrs_schedules set {damage} where name = 'b'"))
    clock.advance(minutes=1)

    fired = await scheduler.fire_due()
    broken = await schedules.get("b")
    await schedules.create("b", "flow", cron="* * * * *")
    clock.advance(minutes=1)
    await scheduler.fire_due()

    assert fired == 2
    assert broken.last_error.startswith(reason)
    assert broken.next_slot_at == minute(2)
    # Mended, it goes on.
    assert (await history(schedules, "b"))[-1] == (2, "fired")
    assert (await schedules.get("b")).last_error is None


# -- roles and plain code --------------------------------------------------------------------------------


async def test_a_process_may_only_schedule(schedules, store, clock):
    await schedules.create("s", "flow", cron="* * * * *")
    running = asyncio.create_task(schedules.run())
    await asyncio.sleep(0)

    clock.advance(minutes=1)
    async with asyncio.timeout(15):
        while not await runs(store):
            await asyncio.sleep(0.01)
    schedules.stop()
    await asyncio.wait_for(running, 10)

    assert await history(schedules) == [(1, "fired")]


def test_plain_code_has_the_same_verbs(tmp_path):
    with blocking.connect(f"sqlite:///{tmp_path / 'plain.db'}") as store:
        store.create_workflow("flow")
        schedules = blocking.schedules(store)

        assert schedules.create("s", "flow", every=60).every_seconds == 60
        assert [each.name for each in schedules.list()] == ["s"]
        assert len(schedules.next("s", 2)) == 2


# -- declared in code ------------------------------------------------------------------------------------


def handler(schedule):
    return Handler.of("flow", lambda: None, options=WorkflowOptions(schedule=schedule))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0 9 * * *", ("flow", "cron", "0 9 * * *", None, "UTC")),
        (timedelta(minutes=5), ("flow", "interval", None, 300.0, "UTC")),
        (minute(5), ("flow", "once", None, None, "UTC")),
        (
            {"name": "tokyo", "cron": "@daily", "timezone": "Asia/Tokyo"},
            ("tokyo", "cron", "0 0 * * *", None, "Asia/Tokyo"),
        ),
    ],
)
async def test_code_may_declare_its_schedule(schedules, store, given, expected):
    for _ in range(2):
        await declare(store.database, store.config, [handler(given), handler(None)])

    [made] = await schedules.list()
    assert (made.name, made.kind, made.cron, made.every_seconds, made.timezone) == expected
    assert made.workflow == "flow"


async def test_the_code_wins_and_a_pause_stays(schedules, store):
    await schedules.create("flow", "flow", every=60)
    await schedules.pause("flow")

    await declare(store.database, store.config, [handler("* * * * *")])

    made = await schedules.get("flow")
    assert (made.kind, made.is_paused) == ("cron", True)


async def test_a_declared_time_that_has_passed_does_not_keep_a_worker_from_starting(schedules, store):
    await declare(store.database, store.config, [handler(minute(-5))])

    assert await schedules.list() == []


@pytest.mark.parametrize(
    ("given", "message"),
    [("nonsense", "cannot be read"), (5, "must be a cron text"), ({"crn": "x"}, "does not know 'crn'")],
)
def test_a_declaration_that_cannot_be_right_is_refused_by_itself(given, message):
    with pytest.raises(pgqrs.ConfigError, match=message):
        check_declared("flow", given)


# -- in workers ------------------------------------------------------------------------------------------


async def test_a_worker_makes_and_fires_the_schedules_of_its_code(store, clock):
    done = []

    @pgqrs.workflow(name="flow", schedule={"cron": "* * * * *", "params": 7})
    def flow(n: int) -> None:
        done.append(n)

    worker = await pgqrs.worker("w").workflows({"flow": flow}).create(store)
    clock.advance(minutes=1)
    await worker.run_until_idle()
    await worker.close()

    assert done == [7]
    assert await history(pgqrs.schedules(store), "flow") == [(1, "fired")]


async def test_until_idle_works_off_queued_slots(schedules, store, clock):
    await schedules.create("s", "flow", cron="* * * * *", overlap="queue", catch_up="all")
    clock.advance(minutes=3)

    await finish(store)

    assert await history(schedules) == [(1, "fired"), (2, "fired"), (3, "fired")]


def test_a_wrong_declaration_is_refused_where_it_stands():
    with pytest.raises(pgqrs.ConfigError, match="never matches"):
        pgqrs.workflow(schedule="0 0 30 2 *")
