"""From a file to PostgreSQL: all of it, exactly, once; and nothing runs on both sides."""

import asyncio
import os
import secrets
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

import pgqrs
from conftest import DSN, drop_schema
from pgqrs.db.readable import is_time
from pgqrs.db.upkeep.promotion import COPIED
from pgqrs.engine.runs import slots
from rig.invariants import check_invariants

pytestmark = pytest.mark.backends("sqlite", "turso")

flow = pgqrs.workflow("flow")
# What databases like to change: numbers, the order of keys, quotes, what is not ASCII, what looks like an array.
HOSTILE = {
    "z": 1e16,
    "a": -0.0,
    "small": 5e-324,
    "whole": 2**53 + 1,
    "text": "\\ \" ' {1,NULL} \u2028 \U0001f418 \x7f \u202e e\u0301",
    "": [None, True, {"b": 1, "a": 2}],
    "when": datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=UTC),
}


@pytest.fixture
async def target(backend):
    """An empty schema; checked when the test has ended."""
    if DSN not in os.environ:
        pytest.skip(os.environ["PGQRS_TEST_POSTGRES_MISSING"])
    config = pgqrs.Config(os.environ[DSN], schema=f"t_{secrets.token_hex(8)}", pool_size=4)
    yield config
    try:
        await check_invariants(config)
    finally:
        await drop_schema(config)


@pytest.fixture
async def opened(clock):
    """Opens stores, and closes them when the test has ended."""
    stores = []

    async def open_one(config, **settings):
        store = await pgqrs.connect_with(config, **{"clock": clock, **settings})
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def source(config, opened):
    store = await opened(config)
    await store.create_workflow("flow")
    return store


async def execute(store, handler, *, name="flow"):
    worker = await pgqrs.consumer("w", 0, name).handler(handler).create(store)
    try:
        await worker.run_until_idle()
    finally:
        await worker.close()


def in_the_file(config):
    """Every row of every table, as SQLite itself reads it."""
    with closing(sqlite3.connect(f"file:{config.path}?mode=ro", uri=True)) as connection:
        return {table: _rows(connection.execute(f"select * from {table}")) for table in COPIED}


def _rows(cursor):
    names = [column[0] for column in cursor.description]
    return sorted((dict(zip(names, row, strict=True)) for row in cursor), key=repr)


async def on_the_server(config):
    """The same, as PostgreSQL gives it to a stranger, with times as SQLite has them."""
    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    try:
        found = {}
        for table in COPIED:
            rows = await connection.fetch(f'select * from "{config.schema}".{table}')
            found[table] = sorted(({name: _plain(name, row[name]) for name in row.keys()} for row in rows), key=repr)  # noqa: SIM118
        return found
    finally:
        await connection.close()


def _plain(name, value):
    if is_time(name) and value is not None:
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return value


async def fill(store, clock):
    """Something of everything, nothing of it under way."""
    admin = pgqrs.admin(store)

    async def handler(ctx, params):
        await ctx.step("echo", lambda: params)
        match params["do"]:
            case "fail":
                raise pgqrs.PermanentError("no \U0001f418 today\n")
            case "sleep":
                await ctx.sleep(3600)
            case "wait":
                return await ctx.wait_for("approve")
            case "spawn":
                return await (await ctx.spawn("child", {"n": 1})).result()
            case "emit":
                await ctx.emit("order.shipped", HOSTILE)
        return params

    await store.create_workflow("child")
    await store.create_workflow("afterwards")
    await store.create_workflow("flow", dead_letter="afterwards")
    for do in ("succeed", "fail", "sleep", "wait", "spawn", "emit"):
        await flow.trigger(
            {"do": do, "value": HOSTILE}, idempotency_key=f"key-{do}", attributes={"do": do, "n": 1}, priority=3
        ).execute(store)
    await execute(store, handler)
    await flow.signal(4, store, "unheard", payload=HOSTILE)
    await flow.trigger({"do": "later"}, delay=86_400).execute(store)
    await flow.delete(await flow.trigger({"do": "delete"}).execute(store), store, reason="a test")
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    await producer.enqueue_many([HOSTILE, "two", None, 4])
    consumer = await store.consumer("tasks")
    [first, second] = await consumer.dequeue(2)
    await first.archive()
    await second.release(delay=60)
    await consumer.close()
    await pgqrs.schedules(store).create("hourly", "flow", every=3600, params={"do": "slot"})
    clock.advance(3601)
    await execute(store, handler)
    await pgqrs.retention(store).keep_recommended()
    await admin.pause_queue("child")


async def test_every_row_of_every_table_arrives_as_it_was(source, config, target, clock):
    await fill(source, clock)
    await source.close()
    before = in_the_file(config)

    report = await pgqrs.promote(config, target, clock=clock)

    after = await on_the_server(target)
    assert {table: len(rows) for table, rows in before.items()} == {each.table: each.rows for each in report.tables}
    assert [table for table, rows in before.items() if not rows] == []
    assert after == before
    assert (report.handed_back, report.already_done) == (0, False)


async def test_a_value_comes_back_as_it_went_in(source, config, target, opened, clock):
    await fill(source, clock)
    await source.close()
    await pgqrs.promote(config, target, clock=clock)

    store = await opened(target)
    run = await flow.get_run(1, store)

    assert run.output() == {"do": "succeed", "value": HOSTILE}
    assert str(run.output()["value"]["a"]) == "-0.0"
    assert list(run.output()["value"]) == list(HOSTILE)


async def test_ids_go_on_beyond_all_that_were_ever_given(source, config, target, opened, clock):
    await source.create_queue("tasks")
    producer = await source.producer("tasks")
    first = await producer.enqueue(1)
    gone = await producer.enqueue(2)
    consumer = await source.consumer("tasks")
    [one, two] = await consumer.dequeue(2)
    await one.archive()
    await two.delete()
    await source.close()
    await pgqrs.promote(config, target, clock=clock)

    store = await opened(target)
    new = await (await store.producer("tasks")).enqueue(3)

    assert first < gone < new


async def test_what_was_under_way_goes_on(source, config, target, opened, clock):
    done = []

    async def handler(ctx, params):
        done.append(await ctx.step("first", lambda: f"first of {params}"))
        match params:
            case "sleep":
                await ctx.sleep(3600)
            case "wait":
                done.append(await ctx.wait_for("approve"))
            case "spawn":
                done.append(await (await ctx.spawn("flow", "child")).result())
        return await ctx.step("last", lambda: "done")

    ids = await flow.trigger_many(["sleep", "wait", "spawn"]).execute(source)
    await execute(source, handler)
    await source.close()
    await pgqrs.promote(config, target, clock=clock)
    store = await opened(target)
    await execute(store, handler)
    assert [(await flow.get_run(i, store)).status for i in ids] == ["PAUSED", "PAUSED", "SUCCESS"]

    clock.advance(3600)
    await flow.signal(ids[1], store, "approve", payload="yes")
    await execute(store, handler)

    assert [(await flow.get_run(i, store)).status for i in ids] == ["SUCCESS"] * 3
    assert "yes" in done


async def test_a_sleeping_run_wakes_no_sooner_than_it_would_have(source, config, target, opened, clock):
    async def handler(ctx):
        await ctx.sleep(3600)

    run_id = await flow.trigger(None).execute(source)
    await execute(source, handler)
    await source.close()
    await pgqrs.promote(config, target, clock=clock)
    store = await opened(target)

    for seconds, status in ((3599, "PAUSED"), (1, "SUCCESS")):
        clock.advance(seconds)
        await execute(store, handler)
        assert (await flow.get_run(run_id, store)).status == status


async def test_an_idempotency_key_stands_for_the_run_that_it_stood_for(source, config, target, opened, clock):
    run_id = await flow.trigger({"n": 1}, idempotency_key="k").execute(source)
    await source.close()
    await pgqrs.promote(config, target, clock=clock)
    store = await opened(target)

    assert await flow.trigger({"n": 1}, idempotency_key="k").execute(store) == run_id
    with pytest.raises(pgqrs.IdempotencyConflict):
        await flow.trigger({"n": 2}, idempotency_key="k").execute(store)


async def test_a_schedule_fires_from_its_next_slot_and_no_slot_twice(source, config, target, opened, clock):
    async def handler(ctx):
        return None

    await pgqrs.schedules(source).create("hourly", "flow", every=3600)
    clock.advance(3601)
    await execute(source, handler)
    await source.close()
    await pgqrs.promote(config, target, clock=clock)
    store = await opened(target)

    await execute(store, handler)
    assert len(await pgqrs.schedules(store).slots("hourly")) == 1
    clock.advance(3600)
    await execute(store, handler)

    slots = await pgqrs.schedules(store).slots("hourly")
    assert [slot.state for slot in slots] == ["fired", "fired"]
    assert len({slot.run_id for slot in slots}) == 2


# -- leases --------------------------------------------------------------------------------------------------


@pytest.fixture
async def held(source, opened):
    """A run in the hands of a worker that is in the midst of a step: its id, the worker's task, and how to go on."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(ctx):
        async def stuck():
            begun.set()
            await go_on.wait()
            return "there"

        return await ctx.step("stuck", stuck)

    run_id = await flow.trigger(None, max_attempts=1).execute(source)
    worker = await pgqrs.consumer("old", 0, "flow").handler(handler).create(source)
    task = asyncio.create_task(worker.poll_forever())
    await asyncio.wait_for(begun.wait(), 30)
    yield run_id, task, go_on
    go_on.set()
    worker.stop()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_held_run_is_due_again_when_its_lease_would_have_ended(held, config, target, opened, clock):
    run_id, _, _ = held

    async def handler(ctx):
        return await ctx.step("stuck", lambda: "here")

    report = await pgqrs.promote(config, target, clock=clock)

    store = await opened(target)
    run = await flow.get_run(run_id, store)
    assert (report.handed_back, run.status, run.worker_id is not None) == (1, "PENDING", True)
    clock.advance(config.lease_seconds - 1)
    await execute(store, handler)
    assert (await flow.get_run(run_id, store)).status == "PENDING"
    clock.advance(2)
    await execute(store, handler)
    # Its only attempt was cut short, and is not counted.
    assert (await flow.get_run(run_id, store)).output() == "here"
    events = [event.event_type for event in await flow.events(run_id, store)]
    assert "handed_back" in events


async def test_a_lease_that_ends_while_the_file_is_copied_is_not_held_against_the_run(
    held, config, target, opened, clock
):
    """Nobody could renew it: the file was locked."""
    run_id, _, _ = held

    def slow(table, done, total):
        if (table, done) == ("pgqrs_workflow_runs", 1):
            clock.advance(10 * config.lease_seconds)

    report = await pgqrs.promote(config, target, progress=slow, clock=clock)

    store = await opened(target)
    await execute(store, lambda ctx: "here")
    assert (report.handed_back, (await flow.get_run(run_id, store)).output()) == (1, "here")


async def test_a_worker_of_the_file_can_record_nothing_any_more_and_ends(held, config, target, opened, clock):
    run_id, task, go_on = held
    await pgqrs.promote(config, target, clock=clock)

    go_on.set()
    with pytest.raises(pgqrs.StorePromoted) as caught:
        await asyncio.wait_for(task, 60)

    assert caught.value.schema == target.schema
    store = await opened(target)
    assert await flow.steps(run_id, store) == []


async def test_a_worker_of_the_file_begins_none_of_what_it_had_leased_ahead(
    source, config, target, clock, monkeypatch
):
    monkeypatch.setattr(slots._Pace, "ahead", lambda pace, at_most: at_most)
    begun, all_begun, go_on = [], asyncio.Event(), asyncio.Event()

    async def handler(ctx):
        begun.append(ctx.run_id)
        if len(begun) == 2:
            all_begun.set()
        await go_on.wait()

    await flow.trigger_many([None] * 4).execute(source)
    worker = await pgqrs.consumer("old", 0, "flow").handler(handler).concurrency(2).create(source)
    task = asyncio.create_task(worker.poll_forever())
    await asyncio.wait_for(all_begun.wait(), 30)
    report = await pgqrs.promote(config, target, clock=clock)

    go_on.set()
    with pytest.raises(pgqrs.StorePromoted):
        await asyncio.wait_for(task, 60)

    assert report.handed_back == 4
    assert len(begun) == 2


async def test_workers_of_the_file_do_not_count_as_workers_of_the_server(held, config, target, opened, clock):
    await pgqrs.promote(config, target, clock=clock)

    store = await opened(target)

    assert [worker.status for worker in await pgqrs.admin(store).workers()] == ["STOPPED"]
    with pytest.raises(pgqrs.NoActiveWorker):
        await flow.trigger(None, require_worker=True).execute(store)


async def test_a_lease_that_had_run_out_counts_as_an_attempt(source, config, target, opened, clock):
    await source.create_queue("tasks")
    await (await source.producer("tasks")).enqueue("x", max_attempts=2)
    consumer = await source.consumer("tasks")
    await consumer.dequeue(lease_seconds=10)
    clock.advance(11)
    report = await pgqrs.promote(config, target, clock=clock)
    store = await opened(target)

    [message] = await (await store.consumer("tasks")).dequeue()

    assert (report.handed_back, message.attempts) == (0, 2)


async def test_a_message_in_work_is_delivered_again_after_its_lease(source, config, target, opened, clock):
    await source.create_queue("tasks")
    await (await source.producer("tasks")).enqueue("x", max_attempts=1)
    consumer = await source.consumer("tasks")
    [message] = await consumer.dequeue(lease_seconds=10)
    await pgqrs.promote(config, target, clock=clock)
    store = await opened(target)
    there = await store.consumer("tasks")

    with pytest.raises(pgqrs.StorePromoted):
        await message.archive()
    assert await there.dequeue() == []
    clock.advance(10)
    [again] = await there.dequeue()

    assert (again.payload, again.attempts) == ("x", 1)


# -- afterwards ----------------------------------------------------------------------------------------------


async def test_whoever_has_the_file_open_is_told_where_everything_went(source, config, target, clock):
    await source.create_queue("tasks")
    producer = await source.producer("tasks")
    run_id = await flow.trigger(None).execute(source)
    waiting = asyncio.create_task((await flow.get_run(run_id, source)).result())
    await pgqrs.promote(config, target, clock=clock)

    calls = (
        lambda: asyncio.wait_for(waiting, 20),
        lambda: producer.enqueue(1),
        lambda: flow.trigger(None).execute(source),
        lambda: flow.runs(source),
        lambda: source.create_queue("more"),
        lambda: pgqrs.admin(source).workers(),
        lambda: pgqrs.connect_with(config)._open(),
    )
    for call in calls:
        with pytest.raises(pgqrs.StorePromoted, match="was promoted") as caught:
            await call()
        assert (caught.value.promoted_to, caught.value.schema) == (target.safe_dsn, target.schema)


@pytest.mark.backends("sqlite")
async def test_a_connection_of_the_users_is_told_too(source, config, target, clock):
    connection = sqlite3.connect(config.path)
    await pgqrs.promote(config, target, clock=clock)

    with pytest.raises(pgqrs.StorePromoted, match="was promoted"):
        pgqrs.using(connection).trigger("flow", None)

    connection.close()


async def test_a_second_call_finds_it_done(source, config, target, clock):
    await flow.trigger(None).execute(source)
    await source.close()
    first = await pgqrs.promote(config, target, clock=clock)

    again = await pgqrs.promote(config, target, clock=clock)

    assert (again.already_done, again.promotion) == (True, first.promotion)


async def test_a_promoted_file_goes_nowhere_else(source, config, target, clock):
    await source.close()
    await pgqrs.promote(config, target, clock=clock)
    other = target.with_changes(schema=f"t_{secrets.token_hex(8)}")

    with pytest.raises(pgqrs.StorePromoted) as caught:
        await pgqrs.promote(config, other, clock=clock)

    assert caught.value.schema == target.schema
    await drop_schema(other)


# -- refused -------------------------------------------------------------------------------------------------


async def test_a_target_that_is_in_use_is_refused_and_nothing_is_changed(source, config, target, opened, clock):
    there = await opened(target, install=True)
    await there.create_queue("somebody-elses")

    for dry_run in (True, False):
        with pytest.raises(pgqrs.InvalidTransition, match="in use"):
            await pgqrs.promote(config, target, dry_run=dry_run, clock=clock)

    await source.create_queue("goes-on")
    assert await pgqrs.admin(there).queues() == ["somebody-elses"]


@pytest.mark.backends("sqlite")
async def test_what_cannot_be_promoted_is_refused_with_the_way_out(tmp_path, target):
    missing = tmp_path / "typo.db"
    empty = tmp_path / "empty.db"
    sqlite3.connect(empty).execute("create table mine (n integer)").connection.close()
    newer = pgqrs.Config(f"sqlite:///{tmp_path / 'other.db'}")

    for source, to, error, said in (
        (target, target, pgqrs.ConfigError, "PostgreSQL already"),
        (newer, newer, pgqrs.ConfigError, "must be PostgreSQL"),
        ("sqlite://:memory:", target, pgqrs.ConfigError, "in memory"),
        (f"sqlite:///{missing}", target, pgqrs.ConnectionFailed, "there is no file"),
        (f"sqlite:///{empty}", target, pgqrs.SchemaNotInstalled, "no pgqrs tables"),
    ):
        with pytest.raises(error, match=said):
            await pgqrs.promote(source, to)
    assert not missing.exists()


async def test_a_dry_run_counts_and_changes_nothing(source, config, target, opened, clock):
    await flow.trigger_many([HOSTILE] * 3).execute(source)
    seen = []

    # Not even the tables need be there.
    report = await pgqrs.promote(config, target, dry_run=True, progress=lambda *told: seen.append(told), clock=clock)

    rows = {each.table: each.rows for each in report.tables}
    assert (rows["pgqrs_workflow_runs"], rows["pgqrs_messages"], rows["pgqrs_workflow_steps"]) == (3, 3, 0)
    assert report.bytes > 3 * 100
    assert ("pgqrs_workflow_runs", 3, 3) in seen
    assert await pgqrs.admin(await opened(target)).version() == 0
    await flow.trigger(None).execute(source)


async def test_what_postgresql_does_not_take_stops_it_and_both_are_as_they_were(
    source, config, target, opened, clock
):
    await flow.trigger_many([1, 2]).execute(source)
    connection = source.database.file.connect()
    connection.execute("update pgqrs_workflow_runs set input = 'not json' where run_id = 2")
    connection.close()

    with pytest.raises(
        pgqrs.PgqrsError, match=r"pgqrs_workflow_runs.input in 1 row \(run_id 2\); nothing was copied"
    ):
        await pgqrs.promote(config, target, clock=clock)

    assert not any((await on_the_server(target)).values())
    await flow.trigger(3).execute(source)


async def test_a_row_that_does_not_arrive_as_it_was_stops_it(source, config, target, opened, clock):
    await flow.trigger_many([1, 2]).execute(source)
    there = await opened(target, install=True)
    await there.close()
    connection = await asyncpg.connect(target.dsn)
    await connection.execute(f"""
        set search_path = "{target.schema}";
        create function spoil() returns trigger language plpgsql as
            $$ begin new.priority := new.priority + 1; return new; end $$;
        create trigger spoil before insert on pgqrs_messages for each row when (new.message_id = 2)
            execute function spoil();
    """)

    with pytest.raises(pgqrs.PgqrsError, match="pgqrs_messages did not arrive as it was"):
        await pgqrs.promote(config, target, clock=clock)

    await connection.close()
    assert not any((await on_the_server(target)).values())
    await flow.trigger(3).execute(source)


async def test_large_values_go_a_few_at_a_time(source, config, target, clock, monkeypatch):
    from pgqrs.db.drivers.sqlite.exclusive import ExclusiveSession

    batches = []
    read = ExclusiveSession.batches

    async def counted(self, *args, **options):
        async for rows in read(self, *args, **options):
            batches.append(len(rows))
            yield rows

    monkeypatch.setattr(ExclusiveSession, "batches", counted)
    await flow.trigger_many(["x" * 1_500_000] * 7).execute(source)
    await source.close()

    report = await pgqrs.promote(config, target, clock=clock)

    assert report.bytes > 7 * 1_500_000
    assert max(batches[: batches.index(3) + 1]) <= 7
    assert 3 in batches


async def test_many_rows_go_in_batches(source, config, target, clock):
    await flow.trigger_many([None] * 2_500).execute(source)
    await source.close()
    seen = []

    await pgqrs.promote(config, target, progress=lambda *told: seen.append(told), clock=clock)

    assert [told for told in seen if told[0] == "pgqrs_workflow_runs"] == [
        ("pgqrs_workflow_runs", done, 2_500) for done in (0, 1_000, 2_000, 2_500)
    ]
