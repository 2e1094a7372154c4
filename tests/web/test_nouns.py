"""Queues, workflows, workers, schedules, outbox and the store as a whole, over HTTP."""

import dataclasses

import pytest

import pgqrs
from rig import http

flow = pgqrs.workflow("flow")
API = "/api/v1"


async def _nothing(ctx):
    return None


async def test_a_queue_from_making_it_to_removing_it(store, api):
    made = await api.post(f"{API}/queues", json={"name": "tasks"})
    assert (made.status_code, made.headers["location"]) == (201, f"{API}/queues/tasks")
    sent = await api.post(f"{API}/queues/tasks/messages", json={"payload": {"n": 1}})
    assert (sent.status_code, sent.json()["message_id"] > 0) == (201, True)
    assert (await api.post(f"{API}/queues/tasks/pause")).json()["paused"] is True
    [listed] = (await api.get(f"{API}/queues")).json()["items"]
    assert (listed["queue"], listed["paused"], listed["ready"]) == ("tasks", True, 1)
    assert (await api.post(f"{API}/queues/tasks/resume")).json()["paused"] is False
    assert (await api.delete(f"{API}/queues/tasks")).status_code == 409
    assert (await api.post(f"{API}/queues/tasks/purge")).json() == {"count": 1, "dry_run": True}
    assert (await api.get(f"{API}/queues/tasks")).json()["ready"] == 1
    assert (await api.post(f"{API}/queues/tasks/purge", json={"dry_run": False})).json()["count"] == 1
    assert (await api.delete(f"{API}/queues/tasks")).status_code == 200
    assert (await api.get(f"{API}/queues/tasks")).status_code == 404


async def test_the_queue_of_a_workflow_is_not_purged(store, api):
    await store.create_workflow("flow")
    await flow.trigger(None).execute(store)

    assert (await api.post(f"{API}/queues/flow/purge", json={"dry_run": False})).status_code == 409
    assert (await api.delete(f"{API}/queues/flow", params={"force": "true"})).status_code == 409


async def test_dead_letters_are_paged_and_replayed(store, api, clock):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many([1, 2, 3], max_attempts=1)
    await (await store.consumer("tasks")).dequeue(3, lease_seconds=10)
    clock.advance(11)

    first = (await api.get(f"{API}/queues/tasks/dead", params={"limit": 2})).json()
    rest = (await api.get(f"{API}/queues/tasks/dead", params={"cursor": first["next_cursor"]})).json()
    assert [each["payload"] for each in first["items"] + rest["items"]] == [1, 2, 3]
    assert rest["next_cursor"] is None
    one = first["items"][0]["id"]
    assert (await api.post(f"{API}/queues/tasks/replay", json={"ids": [one]})).json() == {"count": 1}
    assert (await api.post(f"{API}/queues/tasks/replay")).json() == {"count": 2}
    assert (await api.get(f"{API}/queues/tasks/dead")).json()["items"] == []


async def test_a_cursor_of_another_list_is_refused(store, api):
    await store.create_workflow("flow")
    await flow.trigger_many(range(2)).execute(store)
    cursor = (await api.get(f"{API}/runs", params={"limit": 1})).json()["next_cursor"]

    assert (await api.get(f"{API}/queues/flow/dead", params={"cursor": cursor})).status_code == 422
    assert (await api.get(f"{API}/outbox", params={"cursor": cursor})).status_code == 422


async def test_workflows_are_made_listed_and_paused(store, api):
    assert (await api.post(f"{API}/workflows", json={"name": "rescue"})).status_code == 201
    made = await api.post(f"{API}/workflows", json={"name": "flow", "dead_letter": "rescue"})
    assert (made.status_code, made.json()["workflow"]) == (201, "flow")
    await flow.trigger(None).execute(store)

    [listed, _] = (await api.get(f"{API}/workflows")).json()["items"]
    assert (listed["workflow"], listed["pending"]) == ("flow", 1)
    assert (await api.post(f"{API}/workflows/flow/pause")).json()["queue"]["paused"] is True
    assert (await api.post(f"{API}/workflows/flow/resume")).json()["queue"]["paused"] is False
    assert (await api.get(f"{API}/workflows/flow/metrics", params={"window": "7d"})).json()["window"] == 7 * 86400
    assert (await api.get(f"{API}/workflows/flow/metrics", params={"window": "soon"})).status_code == 422
    assert (await api.post(f"{API}/workflows/tasks/pause")).status_code == 404
    assert (await api.post(f"{API}/workflows", json={"name": "flow", "dead_letter": "no"})).status_code == 404


async def test_pausing_a_workflow_does_not_pause_a_queue_of_that_name(store, api):
    await store.create_queue("tasks")

    assert (await api.post(f"{API}/workflows/tasks/pause")).status_code == 404
    assert (await api.get(f"{API}/queues/tasks")).json()["paused"] is False


async def test_workers_are_listed_and_what_they_hold_is_released(store, api, furnished):
    worker_id = furnished["worker_id"]

    [listed] = (await api.get(f"{API}/workers")).json()["items"]
    assert (listed["name"], listed["info"]["handlers"]) == ("w1", ["flow"])
    assert (await api.get(f"{API}/workers/{worker_id}")).json() == listed
    assert (await api.get(f"{API}/workers", params={"queue": "tasks"})).json()["items"] == []
    assert (await api.post(f"{API}/workers/{worker_id}/release")).json() == {"count": 0}
    for missing in ("77", "x", "9" * 30):
        assert (await api.get(f"{API}/workers/{missing}")).status_code == 404
        assert (await api.post(f"{API}/workers/{missing}/release")).status_code == 404
        assert (await api.post(f"{API}/workers/{missing}/stop")).status_code == 404


async def test_a_worker_is_told_to_stop(store, api, furnished):
    consumer = await store.consumer("tasks")

    told = await api.post(f"{API}/workers/{furnished['worker_id']}/stop")
    refused = await api.post(f"{API}/workers/{consumer.worker_id}/stop")

    assert (told.status_code, told.json()["status"]) == (200, "STOPPED")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid-transition")


async def test_a_look_into_a_queue_takes_nothing_and_is_paged(store, api, furnished):
    await (await store.producer("tasks")).enqueue_many([{"n": 2}, {"n": 3}])

    first = (await api.get(f"{API}/queues/tasks/messages", params={"limit": 2})).json()
    rest = (await api.get(f"{API}/queues/tasks/messages", params={"cursor": first["next_cursor"]})).json()

    assert [each["payload"] for each in first["items"] + rest["items"]] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert rest["next_cursor"] is None
    assert (await api.get(f"{API}/queues/tasks")).json()["ready"] == 3
    assert (await api.get(f"{API}/queues/tasks/messages", params={"cursor": "x"})).status_code == 422
    assert (await api.get(f"{API}/queues/nobody/messages")).status_code == 404


async def test_the_doctor_says_what_is_well_and_what_is_not(store, api, furnished, backend):
    report = (await api.get(f"{API}/doctor")).json()

    codes = {each["code"]: each["level"] for each in report["findings"]}
    assert codes["schema"] == "ok"
    # The tests' own server does not sync.
    assert codes["durability"] == ("bad" if backend == "postgres" else "ok")
    assert report["level"] == max(codes.values(), key=["ok", "warn", "bad"].index)


async def test_a_schedule_from_making_it_to_removing_it(store, api):
    await store.create_workflow("flow")
    asked = {"name": "nightly", "workflow": "flow", "cron": "30 2 * * *", "params": {"n": 1}}

    made = await api.post(f"{API}/schedules", json=asked)
    assert (made.status_code, made.headers["location"]) == (201, f"{API}/schedules/nightly")
    assert (await api.post(f"{API}/schedules", json={**asked, "cron": "0 3 * * *"})).status_code == 200
    assert (await api.get(f"{API}/schedules/nightly")).json()["cron"] == "0 3 * * *"
    slots = (await api.get(f"{API}/schedules/nightly/next", params={"count": 2})).json()["items"]
    assert [each["slot_at"] for each in slots] == ["2030-01-01T03:00:00Z", "2030-01-02T03:00:00Z"]
    assert (await api.post(f"{API}/schedules/nightly/pause")).json()["paused_at"] is not None
    assert (await api.post(f"{API}/schedules/nightly/resume", json={"catch_up": True})).json()["paused_at"] is None
    fired = await api.post(f"{API}/schedules/nightly/trigger")
    assert fired.status_code == 201
    run = (await api.get(fired.headers["location"])).json()
    assert (run["input"], run["attributes"]) == ({"n": 1}, {"schedule": "nightly"})
    [created] = (await api.get(f"{fired.headers['location']}/events")).json()["items"]
    assert created["actor"] == "local"
    assert (await api.get(f"{API}/schedules/nightly/slots")).json() == {"items": []}
    assert (await api.delete(f"{API}/schedules/nightly")).json()["name"] == "nightly"
    assert (await api.get(f"{API}/schedules")).json() == {"items": [], "next_cursor": None}


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"cron": "30 2 * * *", "every_seconds": 5},
        {"cron": "61 * * * *"},
        {"every_seconds": 0},
        {"at": "2030-01-01"},
        {"cron": "0 3 * * *", "timezone": "Mars/Olympus"},
        {"cron": "0 3 * * *", "timezone": "../../etc/passwd"},
        {"cron": "0 3 * * *", "overlap": "maybe"},
    ],
)
async def test_a_schedule_that_cannot_be_meant_is_refused(store, api, more):
    await store.create_workflow("flow")

    answer = await api.post(f"{API}/schedules", json={"name": "n", "workflow": "flow", **more})

    assert answer.status_code == 422, answer.text


async def test_the_outbox_is_paged_and_what_is_dead_is_replayed(config, clock):
    published = dataclasses.replace(config, outbox="created")
    async with pgqrs.connect_with(published, install=True, clock=clock) as store, http.client(store) as api:
        await store.create_workflow("flow")
        await flow.trigger_many(range(3)).execute(store)

        first = (await api.get(f"{API}/outbox", params={"limit": 2})).json()
        rest = (await api.get(f"{API}/outbox", params={"cursor": first["next_cursor"]})).json()

        assert [each["run_id"] for each in first["items"] + rest["items"]] == [1, 2, 3]
        assert rest["next_cursor"] is None
        assert (await api.get(f"{API}/outbox/counts")).json()["pending"] == 3

        async def refuse(event):
            raise pgqrs.PublishFailed("no")

        await pgqrs.dispatcher(store).to(refuse).max_attempts(1).run_until_idle()
        dead = (await api.get(f"{API}/outbox/dead", params={"limit": 2})).json()
        last = (await api.get(f"{API}/outbox/dead", params={"cursor": dead["next_cursor"]})).json()
        assert len(dead["items"] + last["items"]) == 3
        one = dead["items"][0]["event_id"]
        assert (await api.post(f"{API}/outbox/replay", json={"ids": [one]})).json() == {"count": 1}
        assert (await api.post(f"{API}/outbox/replay")).json() == {"count": 2}


async def test_failures_and_stats(store, api, execute):
    async def fails(ctx):
        raise pgqrs.PermanentError("no address for c42")

    await store.create_workflow("flow")
    await flow.trigger_many(range(2)).execute(store)
    await execute(fails)

    [group] = (await api.get(f"{API}/failures")).json()["items"]
    assert (group["workflow"], group["count"]) == ("flow", 2)
    assert (await api.get(f"{API}/failures", params={"since": "2030-06-01"})).json()["items"] == []
    assert (await api.get(f"{API}/failures", params={"since": 'x"y'})).status_code == 422
    assert (await api.get(f"{API}/stats")).json()["runs"]["ERROR"] == {"count": 2, "capped": False}


async def test_health_and_readiness_are_told_to_everyone_and_the_version_to_readers(store, token_file, tokens):
    async with http.client(store, tokens=token_file, headers={}) as api:
        assert (await api.get("/healthz")).json() == {"status": "ok"}
        assert (await api.get("/readyz")).json() == {"status": "ok"}
        assert (await api.get("/version")).status_code == 401
        known = {"authorization": f"Bearer {tokens['read']}"}
        assert (await api.get("/version", headers=known)).json()["schema_version"] > 0
        assert (await api.get("/healthz", headers={"authorization": "Bearer wrong"})).status_code == 200


async def test_it_is_not_ready_when_the_database_is_gone(store):
    async with http.client(store) as api:
        await store.close()

        answer = await api.get("/readyz")

    assert answer.status_code == 503
    assert (await _health(store)).status_code == 200


async def _health(store):
    async with http.client(store) as api:
        return await api.get("/healthz")
