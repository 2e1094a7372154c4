"""Addresses that no page ever made: names that no database holds, places in lists that were made up."""

import json
import random
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

import pgqrs
from pgqrs.api.cursors import to_cursor
from pgqrs.db.queries import Query
from pgqrs.db.tables.runs import StepPlace
from pgqrs.web.pagination import step_cursor
from rig.probes import Probe

PLACES = (
    "/workflows/{}", "/queues/{}", "/schedules/{}", "/queues/{}/confirm/pause", "/workflows/{}/confirm/pause", "/schedules/{}/confirm/trigger",
    "/api/v1/queues/{}", "/api/v1/queues/{}/messages", "/api/v1/queues/{}/dead", "/api/v1/workflows/{}", "/api/v1/workflows/{}/metrics",
    "/api/v1/schedules/{}", "/api/v1/schedules/{}/next", "/api/v1/schedules/{}/slots",
    "/workflows?after={}", "/runs?q={}", "/runs?q=workflow%3A{}", "/runs?cursor={}", "/outbox?cursor={}", "/runs/1?step={}", "/runs/1?events_after={}",
    "/runs/1?steps_after={}", "/runs/1/download?what=output&step={}", "/api/v1/runs?q={}", "/api/v1/runs?attr=a%3D{}", "/api/v1/runs?cursor={}",
    "/failures?since={}", "/login?next={}",
)  # fmt: skip
NAMES = ("%00", "a%00b", "%00%00", "%ff", "%ed%a0%80", "..%2f..", "x" * 5000, "%0d%0aX-Evil:1", "%E2%80%AE")


@pytest.fixture
async def probe(store):
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    await pgqrs.workflow("flow").trigger({}).execute(store)
    return Probe(store)


async def test_a_name_that_no_database_holds_is_refused(probe):
    for place in PLACES:
        for name in NAMES:
            await probe.get(place.format(name))

    assert probe.broken == {}


async def test_a_place_among_the_steps_that_was_made_up_is_refused(probe):
    chance = random.Random(26)
    moments = (
        "2030-01-01T00:00:00+00:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2030-01-01",
        "x",
        5,
        None,
        [],
    )
    ordinals = (0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, 10**30, 1.5, True, None, "0", [])
    names = ("x", "", "\0", "\ud800", "x" * 100_000, None, 5, {})
    for _ in range(150):
        made_up = [chance.choice(moments), chance.choice(ordinals), chance.choice(names)][
            : chance.choice((3, 3, 3, 2))
        ]
        await probe.get(f"/runs/1?steps_after={quote(json.dumps(made_up))}")
    for moment in (0, -1, 2**63 - 1, -(2**63), 10**17):
        for ordinal in (0, -1, 2**31, -(2**31) - 1, 2**63 - 1):
            await probe.get(f"/runs/1?steps_after={quote(to_cursor(moment, ordinal, name='x'))}")
    for text in ("[" * 5000, "1" * 5000, "NaN", '["2030-01-01T00:00:00+00:00", ' + "9" * 5000 + ', "x"]', "{}"):
        await probe.get(f"/runs/1?steps_after={quote(text)}")

    assert probe.broken == {}
    real = step_cursor(StepPlace(datetime(2030, 1, 1, tzinfo=UTC), 0, "x"))
    assert (await probe.get(f"/runs/1?steps_after={quote(real)}")).status == 200


@pytest.mark.breaks("I1")
@pytest.mark.parametrize(
    "info", ["null", "[]", "5", '{"handlers": null}', '{"handlers": 7, "prefixes": {}}', '{"pid": []}']
)
async def test_a_worker_that_says_nothing_sensible_of_itself_is_listed(store, probe, info):
    worker = await pgqrs.consumer("worker", 0, "flow").handler(_handler).create(store)
    await store.database.execute(_SPOIL, info=info)

    for place in (
        "/workers",
        "/",
        "/system",
        "/runs/1",
        "/api/v1/workers",
        "/api/v1/doctor",
        "/api/v1/runs/1/why",
        "/api/v1/stats",
    ):
        assert (await probe.get(place)).status == 200
    assert await pgqrs.workflow("flow").trigger({}).execute(store)
    await worker.close()


async def _handler(ctx, params=None):
    return params


_SPOIL = Query("spoil", "update pgqrs_workers set info = {as_json :info}")


async def test_a_message_for_a_workflows_own_queue_is_refused_with_the_fix(store, probe):
    with pytest.raises(
        pgqrs.InvalidTransition, match=r"belongs to workflow 'flow'; start a run of it instead: .*trigger"
    ):
        await store.producer("flow")
    answered = await probe.post("/api/v1/queues/flow/messages", {"payload": 1})

    assert answered.status == 409
    assert "trigger" in json.loads(answered.content)["hint"]
    assert await (await store.producer("tasks")).enqueue(1) > 0
