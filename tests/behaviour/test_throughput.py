"""How a store does: what ended in each part of the last hour, how long it took, every workflow in a line."""

from datetime import timedelta

import pytest

import pgqrs
from pgqrs.db.views import throughput
from rig.history import PastRun, write

# Runs that were made up: nobody executed them, and they have no messages.
pytestmark = pytest.mark.breaks("I1", "I4", "I8", "I12")


def past(now, *runs):
    """Workflow, status, how long ago it ended, how long it took."""
    return [
        PastRun(
            run_id,
            workflow,
            status,
            now - timedelta(seconds=ago + took + 1),
            started_at=now - timedelta(seconds=ago + took),
            completed_at=now - timedelta(seconds=ago),
        )
        for run_id, (workflow, status, ago, took) in enumerate(runs, 1)
    ]


async def test_what_ended_stands_in_its_minute_the_oldest_first(store, clock):
    await write(
        store,
        past(
            clock.now(),
            ("a", "SUCCESS", 0, 1),
            ("b", "SUCCESS", 59, 1),
            ("a", "ERROR", 60, 1),
            ("b", "CANCELLED", 3599, 1),
            ("a", "SUCCESS", 3600, 1),
        ),
    )
    found = await throughput.pulse(store.database)

    assert (found.window_seconds, found.bucket_seconds, found.capped) == (3600, 60, False)
    assert (found.succeeded[-1], found.failed[-2], found.cancelled[0]) == (2, 1, 1)
    # The one that ended an hour ago is no longer of this hour.
    assert found.ended == 4


async def test_percentiles_are_those_of_each_minute(store, clock):
    await write(store, past(clock.now(), *(("a", "SUCCESS", 30, seconds) for seconds in (1, 2, 3, 4, 101))))
    found = await throughput.pulse(store.database)

    assert found.p50_seconds[-1] == pytest.approx(3)
    assert found.p95_seconds[-1] == pytest.approx(81.6)
    assert found.p50_seconds[:-1] == (None,) * 59


async def test_where_much_ended_less_of_the_past_is_looked_at(store, clock, monkeypatch):
    monkeypatch.setattr(throughput, "MOST_ENDED", 5)
    old = [("a", "SUCCESS", 1200, 1)] * 4
    await write(store, past(clock.now(), *old, *[("a", "SUCCESS", 100, 1)] * 5))
    found = await throughput.pulse(store.database)

    assert (found.window_seconds, found.bucket_seconds, found.ended, found.capped) == (600, 10, 5, False)


async def test_more_than_can_be_counted_is_said_to_be_more(store, clock, monkeypatch):
    monkeypatch.setattr(throughput, "MOST_ENDED", 5)
    await write(store, past(clock.now(), *[("a", "SUCCESS", 1, 1)] * 20))
    found = await throughput.pulse(store.database)

    assert (found.window_seconds, found.capped) == (60, True)


async def test_an_empty_store_has_a_pulse_of_nothing(store):
    found = await throughput.pulse(store.database)

    assert (found.ended, set(found.p95_seconds), len(found.failed)) == (0, {None}, 60)


async def test_workflows_at_a_glance(store, clock):
    await write(
        store,
        past(
            clock.now(),
            ("a", "SUCCESS", 10, 1),
            ("a", "SUCCESS", 20, 1),
            ("a", "ERROR", 5, 1),
            ("a", "ERROR", 90_000, 1),
        ),
    )
    await store.create_workflow("b")
    await pgqrs.workflow("b").trigger().execute(store)
    await pgqrs.admin(store).pause_queue("b")
    a, b = await throughput.workflows_at_a_glance(store.database, window=86_400, limit=10)
    [second] = await throughput.workflows_at_a_glance(store.database, window=86_400, limit=10, after="a")

    assert (a.workflow, a.succeeded.count, a.failed.count) == ("a", 2, 1)
    assert a.success_rate == pytest.approx(100 * 2 / 3)
    assert a.last_ended_at == clock.now() - timedelta(seconds=5)
    assert (b.pending.count, b.paused_at, b.success_rate, b.last_ended_at) == (1, clock.now(), None, None)
    assert second == b


async def test_groups_of_failures_tell_their_number_over_time(store, clock):
    runs = past(clock.now(), *(("a", "ERROR", ago, 1) for ago in (1800, 1801, 84_600)))
    import dataclasses

    await write(store, [dataclasses.replace(run, error_signature="E-1", last_error="E: no") for run in runs])
    [group] = await pgqrs.admin(store).failures()

    assert (group.count, len(group.over_time), group.over_time[-1], group.over_time[0]) == (3, 24, 2, 1)
    assert sum(group.over_time) == 3
