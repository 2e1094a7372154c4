"""What a store shows of itself: counted from the database, in a text that Prometheus reads."""

import pytest

import pgqrs
from pgqrs import telemetry
from pgqrs.db.queries import Query
from pgqrs.db.views import metrics
from pgqrs.telemetry import metric_types
from rig.exposition import values_of


@pytest.fixture
def gauge(store):
    async def value(name, **labels):
        content_type, text = await telemetry.exposition(store)
        assert content_type == "text/plain; version=0.0.4; charset=utf-8"
        return values_of(text).get((name, frozenset(labels.items())))

    return value


async def test_an_empty_store_has_nothing_to_show_and_shows_that(store, gauge):
    assert await gauge("pgqrs_outbox_unpublished") == 0
    assert await gauge("pgqrs_dead_letters", kind="message") == 0
    assert await gauge("pgqrs_dead_letters", kind="event") == 0
    assert await gauge("pgqrs_workers", queue="*", state="ready") == 0


async def test_the_depth_of_a_queue_and_the_age_of_its_oldest(store, clock, gauge):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    await producer.enqueue_many(range(3))
    await producer.enqueue_many(range(2), delay=3600)
    await (await store.consumer("tasks")).dequeue(1)
    clock.advance(7)

    assert await gauge("pgqrs_queue_depth", queue="tasks", state="ready") == 2
    assert await gauge("pgqrs_queue_depth", queue="tasks", state="scheduled") == 2
    assert await gauge("pgqrs_queue_depth", queue="tasks", state="leased") == 1
    assert await gauge("pgqrs_queue_depth", queue="tasks", state="dead") == 0
    assert await gauge("pgqrs_queue_oldest_ready_age_seconds", queue="tasks") == pytest.approx(7)


async def test_dead_letters_are_counted(store, clock, gauge):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue(1, max_attempts=1)
    await (await store.consumer("tasks")).dequeue(1)
    clock.advance(store.config.lease_seconds + 1)

    assert await gauge("pgqrs_dead_letters", kind="message") == 1
    assert await gauge("pgqrs_queue_depth", queue="tasks", state="dead") == 1
    # It is nobody's to take.
    assert await gauge("pgqrs_queue_oldest_ready_age_seconds", queue="tasks") == 0


async def test_active_runs_by_workflow_and_status(store, gauge):
    async def waits(ctx, params):
        await ctx.wait_for("go")

    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger_many(range(2)).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(waits).create(store)
    await worker.run_until_idle()
    await worker.close()
    await pgqrs.workflow("flow").trigger(None).execute(store)

    assert await gauge("pgqrs_runs_active", workflow="flow", status="PAUSED") == 2
    assert await gauge("pgqrs_runs_active", workflow="flow", status="PENDING") == 1
    assert await gauge("pgqrs_runs_active", workflow="flow", status="RUNNING") == 0


async def test_workers_by_queue_and_whether_they_give_signs_of_life(store, clock, gauge):
    async def nothing(ctx, params):
        return None

    await store.create_queue("tasks")
    await store.consumer("tasks", name="stale")
    clock.advance(3 * store.config.lease_seconds + 1)
    await store.consumer("tasks", name="ready")
    gone = await store.consumer("tasks", name="gone")
    await gone.close()
    several = await pgqrs.worker("several").workflows({"a": nothing, "b": nothing}).create(store)

    assert await gauge("pgqrs_workers", queue="tasks", state="ready") == 1
    assert await gauge("pgqrs_workers", queue="tasks", state="stale") == 1
    assert await gauge("pgqrs_workers", queue="*", state="ready") == 1
    await several.close()
    assert await gauge("pgqrs_workers", queue="*", state="ready") == 0


async def test_what_is_to_be_published_is_counted(connect, config, gauge):
    async with pgqrs.connect_with(config.with_changes(outbox="created"), install=True) as store:
        await store.create_workflow("flow")
        await pgqrs.workflow("flow").trigger_many(range(3)).execute(store)
        given_up = (
            "update pgqrs_outbox_events set dead_at = created_at, attempts = 9, last_error = 'no' where event_id = 1"
        )
        await store.database.execute(Query("give_up", given_up))
        values = values_of((await telemetry.exposition(store))[1])

    assert values["pgqrs_outbox_unpublished", frozenset()] == 2
    assert values["pgqrs_dead_letters", frozenset({("kind", "event")})] == 1


async def test_counts_stop_at_their_caps(store, gauge, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_COUNTED", 3)
    monkeypatch.setattr(metrics, "LEAST_COUNTED", 1)
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger_many(range(9)).execute(store)

    assert await gauge("pgqrs_queue_depth", queue="flow", state="ready") == 3
    assert await gauge("pgqrs_runs_active", workflow="flow", status="PENDING") == 3


async def test_with_many_queues_each_is_counted_less_far(store, gauge, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_READ", 8)
    monkeypatch.setattr(metrics, "LEAST_COUNTED", 1)
    for name in ("a", "b", "c", "d"):
        await store.create_queue(name)
        await (await store.producer(name)).enqueue_many(range(5))

    assert await gauge("pgqrs_queue_depth", queue="a", state="ready") == 2


async def test_queues_beyond_the_bound_are_counted_together(store, clock, gauge, monkeypatch):
    monkeypatch.setattr(metric_types.LabelNames.__init__, "__defaults__", (2,))
    for number, name in enumerate(("a", "b", "c", "d")):
        await store.create_queue(name)
        await (await store.producer(name)).enqueue_many(range(number + 1))
        clock.advance(1)

    assert await gauge("pgqrs_queue_depth", queue="b", state="ready") == 2
    assert await gauge("pgqrs_queue_depth", queue="other", state="ready") == 3 + 4
    assert await gauge("pgqrs_queue_oldest_ready_age_seconds", queue="other") == pytest.approx(2)
    assert await gauge("pgqrs_queue_depth", queue="c", state="ready") is None


async def test_no_more_queues_are_looked_at_than_a_scrape_can_afford(store, gauge, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_QUEUES", 2)
    for name in ("a", "b", "c"):
        await store.create_workflow(name)

    assert await gauge("pgqrs_queue_depth", queue="b", state="ready") == 0
    assert await gauge("pgqrs_queue_depth", queue="c", state="ready") is None
    assert await gauge("pgqrs_runs_active", workflow="c", status="PENDING") is None
