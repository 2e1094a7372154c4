"""The nouns as JSON: everything that people can list can be told to a program."""

import json
from datetime import UTC, datetime, timedelta

import pgqrs
from pgqrs.api.operations.json_view import to_json
from pgqrs.db.tables import runs

flow = pgqrs.workflow("flow")


async def test_a_run_is_told_whole_with_what_may_be_done_to_it(store, clock):
    await store.create_workflow("flow")
    run_id = await flow.trigger({"when": clock.now()}, attributes={"customer": "c1"}).execute(store)

    told = to_json(await runs.get(store.database, run_id))

    assert json.loads(json.dumps(told)) == told
    assert told["input"] == {"when": {"$datetime": "2030-01-01T00:00:00+00:00"}}
    assert told["attributes"] == {"customer": "c1"}
    assert (told["status"], told["created_at"]) == ("PENDING", "2030-01-01T00:00:00Z")
    assert told["allowed_actions"] == ["pause", "signal", "reset", "cancel", "delete"]
    [listed] = to_json(await pgqrs.admin(store).runs())
    assert {name: told[name] for name in listed} == listed


async def test_every_report_can_be_told(store):
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    admin = pgqrs.admin(store)
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *")
    await (await store.producer("tasks")).enqueue({"n": 1})
    reports = [
        await admin.stats(),
        await admin.workflow_metrics("flow"),
        await admin.queue_metrics("tasks"),
        await admin.workers(),
        await admin.failures(),
        await admin.count_runs(),
        await pgqrs.schedules(store).list(),
        await admin.outbox.stats() if hasattr(admin.outbox, "stats") else None,
    ]

    for report in reports:
        told = to_json(report)
        assert json.loads(json.dumps(told)) == told


def test_what_is_broken_is_shown_as_it_is():
    event = pgqrs.OutboxEvent(
        *("1", "order.shipped", "s", 1, "flow", "{broken", datetime(2030, 1, 1, tzinfo=UTC), 0, None, None, None, 1)
    )

    assert to_json(event)["payload"] == {"$broken": "{broken"}


def test_lengths_of_time_are_seconds_and_keys_are_text():
    assert to_json({pgqrs.RunStatus.ERROR: timedelta(minutes=2)}) == {"ERROR": 120.0}
    assert to_json({1, 2}) == [1, 2]
