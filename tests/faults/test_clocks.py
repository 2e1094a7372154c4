"""Clocks that are wrong, jump or go back."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import pgqrs

LIBRARY = Path(pgqrs.__file__).parent
# Who may ask this machine what time it is, and why.
MAY_ASK = {
    "db/drivers/sqlite/session.py": "its clock is this machine's: the file has no other",
    "engine/outbox/publishers/signature.py": "a signed request carries the sender's time",
    "engine/outbox/publishers/http.py": "the same",
    "cli/output.py": "the command line tells people how long ago something was",
    "web/pages/rendering.py": "so does the dashboard",
    "web/auth/tokens.py": "when a token was made, for people",
    "api/doctor/server.py": "compares it with the database's clock, which is the point",
    "cli/demo/seed_data.py": "the demo's past ends now",
}


@pytest.mark.row("B6.1", "B6.2")
def test_no_decision_is_made_by_this_machines_clock():
    """Time comes from the database; what is measured here is measured by a clock that never jumps."""
    # Not in lines that begin with a quotation mark, nor in hints: errors tell users which clock to ask.
    clocks = re.compile(
        r"^[ \t]*(?!hint=)[^\"'#\s].*\b(time\.time|time\.time_ns|datetime\.now|datetime\.utcnow|date\.today)\(",
        re.MULTILINE,
    )
    asked = {file for file in LIBRARY.rglob("*.py") if clocks.search(file.read_text(encoding="utf-8"))}

    assert {file.relative_to(LIBRARY).as_posix() for file in asked} == set(MAY_ASK)


@pytest.mark.row("B6.1")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("years", [-10, 10])
async def test_a_worker_whose_clock_is_years_off_leases_and_schedules_as_the_others(live_store, monkeypatch, years):
    off = years * 365 * 86400
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + off)
    monkeypatch.setattr(time, "time_ns", lambda: int((right() + off) * 1e9))
    await live_store.create_queue("tasks")
    producer, consumer = await live_store.producer("tasks"), await live_store.consumer("tasks")
    await producer.enqueue("now")
    await producer.enqueue("later", delay=3600)
    [message] = await consumer.dequeue(5, lease_seconds=60)
    metrics = await pgqrs.admin(live_store).queue_metrics("tasks")

    assert message.payload == "now"
    assert (metrics.leased, metrics.scheduled, metrics.ready) == (1, 1, 0)
    # Leases are the database's, too: nobody else gets it meanwhile.
    assert await (await live_store.consumer("tasks")).dequeue(5) == []
    await message.archive()


@pytest.mark.row("B6.3", "B6.4")
async def test_a_database_clock_that_jumps_forward_ends_leases_early_and_fences(store, clock):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue("x")
    [early] = await (await store.consumer("tasks")).dequeue(lease_seconds=60)
    clock.advance(3600)
    [taken] = await (await store.consumer("tasks")).dequeue()

    with pytest.raises(pgqrs.LeaseLost):
        await early.archive()
    await taken.archive()


@pytest.mark.row("B6.3")
async def test_a_database_clock_that_goes_back_makes_late_and_loses_nothing(store, clock):
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await producer.enqueue("before")
    [held] = await consumer.dequeue(lease_seconds=60)
    clock.advance(-3600)
    await producer.enqueue("after")
    other = await store.consumer("tasks")
    [new] = await other.dequeue()
    await held.archive()
    await new.archive()
    await producer.enqueue("lost with its consumer")
    [lost] = await other.dequeue(lease_seconds=60)
    clock.advance(-3600)

    assert await consumer.dequeue() == []
    clock.advance(3661)
    assert [message.payload for message in await consumer.dequeue()] == [lost.payload]


@pytest.mark.row("B6.10")
@pytest.mark.parametrize(
    "when",
    [
        datetime(2030, 1, 1),  # noqa: DTZ001 - that is the point
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        float("inf"),
        "infinity",
    ],
    ids=str,
)
async def test_a_time_at_the_edge_is_refused_or_means_what_it_says(store, clock, when):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    started = False
    try:
        run_id = await flow.trigger(None, run_at=when).execute(store)
        started = True
    except pgqrs.ConfigError:
        assert await flow.runs(store) == []
    if started:
        worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx: None).create(store)
        await worker.run_until_idle()
        await worker.close()
        due = when <= clock.now()
        assert (await flow.get_run(run_id, store)).status == ("SUCCESS" if due else "PENDING")


@pytest.mark.row("B6.11")
async def test_a_sleep_of_a_year_ends_to_the_second(store, clock):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")

    async def handler(ctx):
        await ctx.sleep(timedelta(days=365))

    run_id = await flow.trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    clock.advance(days=365, seconds=-1)
    await worker.run_until_idle()
    early = (await flow.get_run(run_id, store)).status
    clock.advance(1)
    await worker.run_until_idle()
    await worker.close()

    assert (early, (await flow.get_run(run_id, store)).status) == ("PAUSED", "SUCCESS")
