"""Rows written past every check: the rows beside them are still served, and nothing that reads them ends."""

import json
import os
import secrets
import shutil
from datetime import timedelta
from typing import Any

import pytest

import pgqrs
from conftest import drop_schema
from pgqrs.api.operations.export import export_run
from pgqrs.api.operations.why import why
from pgqrs.clock import EARLIEST, LATEST
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from pgqrs.db.upkeep import unreadable_rows
from pgqrs.engine.schedules.scheduler import Scheduler
from rig.hostile_rows import QUEUE, WORKFLOW, HostileRows, furnish
from rig.probes import Probe

# Whoever writes past the library can break all that can be broken.
pytestmark = pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))

ROWS = 400


@pytest.fixture(params=[1, 2], ids=lambda seed: f"seed{seed}")
async def hostile(store, request):
    rows = HostileRows(store, request.param)
    await rows.write(ROWS, **await furnish(store))
    return rows


async def handler(ctx, params: Any = None):
    one = await ctx.step("one", lambda: 1)
    two = await ctx.step("two", lambda: 2)
    return [one, two, params]


async def test_healthy_runs_end_beside_hostile_ones(store, clock, hostile):
    flow = pgqrs.workflow(WORKFLOW)
    run_ids = await flow.trigger_many([{"n": n} for n in range(20)]).execute(store)

    worker = await pgqrs.consumer("worker", 0, WORKFLOW).handler(handler).concurrency(20).create(store)
    for _ in range(4):
        await worker.run_until_idle()
        clock.advance(400)
    await worker.close()

    ended = [await flow.get_run(run_id, store) for run_id in run_ids]
    assert [run.status for run in ended] == ["SUCCESS"] * 20
    assert [run.output() for run in ended] == [[1, 2, {"n": n}] for n in range(20)]


async def test_healthy_messages_are_handled_beside_hostile_ones(store, clock, hostile):
    producer = await store.producer(QUEUE)
    sent = set(await producer.enqueue_many([{"healthy": n} for n in range(20)]))
    seen = []

    async def handle(message):
        seen.append(message.id)
        message.payload  # noqa: B018 - raises for what is no JSON

    consumer = await store.consumer(QUEUE, name="consumer")
    for _ in range(3):
        await consumer.process(handle, until_idle=True)
        clock.advance(400)

    assert sent <= set(seen)
    assert sent.isdisjoint(each.id for each in (await pgqrs.admin(store).peek(QUEUE, limit=1000)))


async def test_healthy_events_are_published_beside_hostile_ones(store, clock, config, hostile):
    told = await pgqrs.connect_with(config.with_changes(outbox="succeeded"), install=True, clock=clock)
    flow = pgqrs.workflow(WORKFLOW)
    run_ids = set(await flow.trigger_many([{"n": n} for n in range(10)]).execute(told))
    worker = await pgqrs.consumer("worker", 0, WORKFLOW).handler(handler).create(told)
    await worker.run_until_idle()
    await worker.close()
    published = set()

    async def publish(event):
        published.add(event.run_id)

    for _ in range(3):
        await pgqrs.dispatcher(told).to(publish).run_until_idle()
        clock.advance(400)
    await told.close()

    assert run_ids <= published


async def test_healthy_schedules_fire_beside_hostile_ones(store, clock, hostile):
    schedules = pgqrs.schedules(store)
    for n in range(5):
        await schedules.create(f"healthy-{n}", WORKFLOW, cron="*/5 * * * *", overlap="allow", catch_up="all")

    for _ in range(4):
        clock.advance(300)
        await Scheduler(store.database, store.config).fire_due()

    for n in range(5):
        slots = await schedules.slots(f"healthy-{n}")
        assert [slot.state for slot in slots] == ["fired"] * 4


async def test_retention_is_applied_beside_hostile_policies(store, clock, hostile):
    flow = pgqrs.workflow(WORKFLOW)
    [run_id] = await flow.trigger_many([{"n": 1}]).execute(store)
    worker = await pgqrs.consumer("worker", 0, WORKFLOW).handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    retention = pgqrs.retention(store)
    await retention.keep("runs", workflow=WORKFLOW, days=1)
    clock.advance(days=2)

    await retention.apply(gently=False)

    with pytest.raises(pgqrs.RunNotFound):
        await flow.get_run(run_id, store)


async def test_every_page_and_every_get_answers(store, hostile):
    probe = Probe(store)

    await probe.ask_everything(most_of_each=6)
    await probe.read_lists(pages=20)

    assert probe.broken == {}
    assert probe.statuses[200] > 200


async def test_every_verb_on_a_hostile_run_is_answered(store, hostile):
    probe = Probe(store)

    await probe.act(hostile.run_ids[:12])

    assert probe.broken == {}


async def test_why_and_export_answer_for_every_hostile_run(store, hostile):
    flow = pgqrs.workflow(WORKFLOW)
    for run_id in hostile.run_ids:
        assert (await why(run_id, store)).sentence
        json.dumps(await export_run(store, run_id), allow_nan=False)
        await flow.steps(run_id, store)
        await flow.events(run_id, store)


async def test_metrics_are_told_beside_hostile_rows(store, hostile):
    admin = pgqrs.admin(store)
    assert (await admin.stats()).runs
    await admin.workflow_metrics(WORKFLOW)
    await admin.failures(since=timedelta(days=365))
    for queue in (QUEUE, WORKFLOW):
        await admin.queue_metrics(queue)


async def test_the_doctor_names_hostile_rows_and_what_it_says_makes_them_readable(store, hostile):
    findings = [each for each in (await pgqrs.admin(store).doctor()).findings if each.code == "unreadable"]
    assert {each.level for each in findings} == {"bad"}
    assert any("pgqrs_workflow_runs." in each.what for each in findings)

    for _ in range(200):
        if not (found := await unreadable_rows.unreadable(store.database, whole=True)):
            break
        await fixed(store, found[0].fix)

    [finding] = [
        each for each in (await pgqrs.admin(store).doctor(verify=True)).findings if each.code == "unreadable"
    ]
    assert (finding.level, finding.what) == ("ok", "every row can be read")


async def fixed(store, statement):
    await store.database.perform(lambda unit: unit.run_as_given(statement, ()), kind=Kind.UNIT, idempotent=False)


@pytest.mark.backends("sqlite", "turso")
async def test_a_file_with_hostile_rows_is_promoted_once_they_are_readable(store, config, clock, hostile, tmp_path):
    target = pgqrs.Config(os.environ["PGQRS_TEST_POSTGRES_DSN"], schema=f"t_{secrets.token_hex(8)}")
    with pytest.raises(pgqrs.InvalidTransition, match=r"cannot be read: .*; nothing was copied; .*update pgqrs_"):
        await pgqrs.promote(config, target, clock=clock)
    while found := await unreadable_rows.unreadable(store.database, whole=True):
        await fixed(store, found[0].fix)
    await store.close()
    # Another file: after each test, its own is looked at.
    moved = shutil.copy(config.path, tmp_path / "moved.db")

    report = await pgqrs.promote(f"{config.backend}:///{moved}", target, clock=clock)

    promoted = await pgqrs.connect_with(target, clock=clock)
    try:
        runs = await promoted.database.fetch(Query("count", "select count(*) from pgqrs_workflow_runs"))
        assert (runs[0][0], report.already_done) == (len(hostile.run_ids), False)
    finally:
        await promoted.close()
        await drop_schema(target)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [("0044-03-15 BC", EARLIEST), ("-infinity", EARLIEST), ("infinity", LATEST), ("294276-12-31", LATEST)],
)
@pytest.mark.backends("postgres")
async def test_a_time_that_python_does_not_have_is_shown_as_unreadable(store, stored, shown):
    await furnish(store)
    flow = pgqrs.workflow(WORKFLOW)
    run_id = await flow.trigger({"n": 1}).execute(store)
    await store.database.execute(
        Query("spoil", "update pgqrs_workflow_runs set created_at = cast(cast(:t as text) as timestamptz)"), t=stored
    )

    assert (await flow.get_run(run_id, store)).created_at == shown
    page = await Probe(store).get(f"/runs/{run_id}")
    assert page.status == 200
    assert "unreadable" in page.text
    [finding] = [each for each in (await pgqrs.admin(store).doctor()).findings if each.code == "unreadable"]
    assert f"pgqrs_workflow_runs.created_at in 1 row (run_id {run_id})" in finding.what


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("stored", ["infinity", "-infinity"])
async def test_a_users_statement_gets_infinite_times_as_the_driver_gives_them(store, stored):
    await store.create_workflow("flow")
    seen = []

    async def handler(ctx, params=None):
        async def work(tx):
            seen.extend(row[0] for row in await tx.fetch(f"select timestamptz '{stored}'"))
            try:
                await tx.fetch("select timestamptz '0044-03-15 BC'")
            except OverflowError as error:
                seen.append(error)

        await ctx.transaction("look", work)

    run_id = await pgqrs.workflow("flow").trigger({}).execute(store)
    worker = await pgqrs.consumer("worker", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert (await pgqrs.workflow("flow").get_run(run_id, store)).status == "SUCCESS"
    assert (seen[0].year, seen[0].tzinfo) == (9999 if stored == "infinity" else 1, None)
    assert isinstance(seen[1], OverflowError)


@pytest.mark.backends("sqlite", "turso")
@pytest.mark.parametrize("value", [b"\xff\xfe", b"\xed\xa0\x80"])
async def test_text_that_is_no_utf8_hides_no_other_row(store, value):
    await furnish(store)
    flow = pgqrs.workflow(WORKFLOW)
    run_ids = await flow.trigger_many([{"n": n} for n in range(3)]).execute(store)

    async def spoil(unit):
        await unit.run_as_given(
            "update pgqrs_workflow_runs set waiting_for = cast(? as text) where run_id = ?", (value, run_ids[1])
        )

    await store.database.perform(spoil, kind=Kind.UNIT, idempotent=False)

    assert [run.run_id for run in await flow.runs(store)] == run_ids[::-1]
    assert "\ufffd" in (await flow.get_run(run_ids[1], store)).waiting_for


async def test_the_doctor_takes_no_row_that_pgqrs_wrote_for_unreadable(connect, config, clock):
    store = await connect()
    await furnish(store)
    await store.create_workflow("rescue")
    await store.create_workflow(WORKFLOW, dead_letter="rescue")
    flow = pgqrs.workflow(WORKFLOW)

    async def everything(ctx, params: Any = None):
        await ctx.step("one", lambda: [1.5, None, "\u00e9\U0001f422"])
        await ctx.progress(1, 2, note="half")
        child = await ctx.spawn("rescue", {"a": 1})
        if params == "fail":
            raise pgqrs.PermanentError("no")
        if params == "wait":
            await ctx.wait_for("go")
        return [child is not None, params]

    run_ids = await flow.trigger_many([{"n": 1}, "fail", "wait", "deleted"], attributes={"a": "b", "n": 1}).execute(
        store
    )
    await flow.trigger(None, idempotency_key="k", delay=3600, priority=-5).execute(store)
    await flow.signal(run_ids[2], store, "other", {"x": 1})
    await pgqrs.schedules(store).create("nightly", WORKFLOW, cron="*/5 * * * *")
    await pgqrs.schedules(store).create("often", WORKFLOW, every=timedelta(seconds=60), jitter=timedelta(seconds=5))
    await pgqrs.retention(store).keep("runs", days=3650)
    producer = await store.producer(QUEUE)
    await producer.enqueue_many([1, {"a": None}, "x"], delay=1)
    consumer = await store.consumer(QUEUE, name="consumer")
    worker = await pgqrs.consumer("worker", 0, WORKFLOW).handler(everything).create(store)
    for _ in range(3):
        await worker.run_until_idle()
        clock.advance(400)
        await Scheduler(store.database, store.config).fire_due()
    for message in await consumer.dequeue(2):
        await message.archive()
    await flow.delete(run_ids[3], store, reason="test")
    await worker.close()
    await consumer.close()

    assert await unreadable_rows.unreadable(store.database, whole=True) == []
