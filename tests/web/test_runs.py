"""Runs over HTTP: trigger, find, look."""

import asyncio

import pytest

import pgqrs

flow = pgqrs.workflow("flow")
RUNS = "/api/v1/runs"


@pytest.fixture(autouse=True)
async def _flow(store):
    await store.create_workflow("flow")


async def _fails(ctx, n=None):
    raise pgqrs.PermanentError("no address for c42")


async def _two_steps(ctx, n):
    async def double():
        return 2 * n

    return await ctx.step("first", double) + await ctx.step("second", double)


async def test_a_triggered_run_has_a_place_and_tells_that_nobody_serves_it(store, api):
    made = await api.post(
        RUNS, json={"workflow": "flow", "params": {"n": 1}, "attributes": {"a": "b"}, "priority": 5}
    )

    assert made.status_code == 201
    told = made.json()
    assert made.headers["location"] == f"{RUNS}/{told['run_id']}"
    assert told["warnings"] == ["no live worker serves workflow 'flow': the run waits in its queue"]
    found = (await api.get(made.headers["location"])).json()
    assert (found["input"], found["attributes"], found["priority"]) == ({"n": 1}, {"a": "b"}, 5)


async def test_no_warning_where_somebody_serves_the_workflow(store, api):
    worker = await pgqrs.consumer("w", 0, "flow").handler(_fails).create(store)

    made = await api.post(RUNS, json={"workflow": "flow"})

    assert made.json()["warnings"] == []
    await worker.close()


async def test_a_key_that_is_used_again_gives_the_same_run_and_the_same_body(api):
    key = {"idempotency-key": "order-7"}
    first = await api.post(RUNS, json={"workflow": "flow", "params": 1}, headers=key)
    second = await api.post(RUNS, json={"workflow": "flow", "params": 1}, headers=key)
    other = await api.post(RUNS, json={"workflow": "flow", "params": 2}, headers=key)

    assert (first.status_code, second.status_code, other.status_code) == (201, 200, 409)
    assert first.json() == second.json()
    assert second.headers["location"] == first.headers["location"]
    assert other.json()["code"] == "idempotency-conflict"


async def test_two_different_keys_in_one_request_are_refused(api):
    body = {"workflow": "flow", "idempotency_key": "a"}

    assert (await api.post(RUNS, json=body, headers={"idempotency-key": "b"})).status_code == 422
    assert (await api.post(RUNS, json=body, headers={"idempotency-key": "a"})).status_code == 201


async def test_who_triggered_a_run_stands_in_its_history(store, api):
    made = (await api.post(RUNS, json={"workflow": "flow"})).json()

    [created] = (await api.get(f"{RUNS}/{made['run_id']}/events")).json()["items"]
    assert (created["event_type"], created["actor"]) == ("created", "local")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"workflow": "flwo"}, 404, "workflow-not-found"),
        ({"workflow": "a b"}, 422, "config-error"),
        ({}, 422, "bad-request"),
        ({"workflow": "flow", "parms": 1}, 422, "bad-request"),
        ({"workflow": "flow", "priority": "high"}, 422, "bad-request"),
        ({"workflow": "flow", "priority": 2**40}, 422, "config-error"),
        ({"workflow": "flow", "delay_seconds": -1}, 422, "config-error"),
        ({"workflow": "flow", "run_at": "2030-01-01T00:00:00"}, 422, "config-error"),
        ({"workflow": "flow", "idempotency_key": ""}, 422, "config-error"),
        ({"workflow": "flow", "max_attempts": 0}, 422, "config-error"),
        ({"workflow": "flow", "require_worker": True}, 409, "no-active-worker"),
    ],
)
async def test_a_trigger_that_cannot_be_meant_is_refused(store, api, body, status, code):
    answer = await api.post(RUNS, json=body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await pgqrs.admin(store).count_runs()).count == 0


async def test_a_near_miss_is_suggested(api):
    assert "did you mean 'flow'?" in (await api.post(RUNS, json={"workflow": "flwo"})).json()["hint"]


async def test_runs_are_found_by_the_grammar_and_by_single_words(store, api, execute):
    for customer in ("c1", "c2", "c3"):
        await flow.trigger(None, attributes={"customer": customer}).execute(store)
    await execute(_fails)
    await flow.trigger(None, attributes={"customer": "c2"}).execute(store)

    async def found(**query):
        answer = await api.get(RUNS, params=query)
        assert answer.status_code == 200, answer.text
        return [each["run_id"] for each in answer.json()["items"]]

    assert await found() == [4, 3, 2, 1]
    assert await found(q="status:error attr:customer=c2") == [2]
    assert await found(status="error", attr="customer=c2") == [2]
    assert await found(q="status:error", attr="customer=c2") == [2]
    assert await found(status="pending,error", workflow="fl*", since="1h", limit=2) == [4, 3]
    assert await found(text="no address") == [3, 2, 1]
    assert await found(workflow="flow", before="1h") == []


async def test_pages_follow_a_cursor_to_the_end(store, api):
    await flow.trigger_many(range(5)).execute(store)
    seen, cursor = [], None
    while True:
        page = (await api.get(RUNS, params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        seen += [each["run_id"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == [5, 4, 3, 2, 1]


async def test_the_number_of_runs_is_told_when_it_is_asked_for(store, api):
    await flow.trigger_many(range(3)).execute(store)

    assert "count" not in (await api.get(RUNS)).json()
    assert (await api.get(RUNS, params={"count": "true"})).json()["count"] == {"count": 3, "capped": False}


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=1e9",
        "limit=x",
        "limit=99999999999999999999",
        "cursor=nonsense",
        "q=colour:red",
        "q=status:error status:paused",
        'q=text:"open',
        "status=lost",
        "since=yesterday",
        "since=99999999999999999999d",
        "parent=-1",
        "parent=99999999999999999999",
        "workflow=a%20b",
        "text=%00",
        "sort=asc",
        "limit=1&limit=2",
        "count=maybe",
    ],
)
async def test_a_question_that_cannot_be_meant_is_refused(api, query):
    answer = await api.get(f"{RUNS}?{query}")

    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]


async def test_a_run_is_looked_at_from_every_side(store, api, execute):
    run_id = await flow.trigger(21).execute(store)
    await execute(_two_steps)

    assert [each["output"] for each in (await api.get(f"{RUNS}/{run_id}/steps")).json()["items"]] == [42, 42]
    assert [each["event_type"] for each in (await api.get(f"{RUNS}/{run_id}/events")).json()["items"]] == [
        "created",
        "succeeded",
    ]
    assert (await api.get(f"{RUNS}/{run_id}/result")).json() == 84
    assert (await api.get(f"{RUNS}/{run_id}/why")).json()["cause"] == "succeeded"
    assert (await api.get(f"{RUNS}/{run_id}/export")).json()["pgqrs"] == 1
    assert (await api.get(f"{RUNS}/{run_id}/children")).json() == {"items": [], "next_cursor": None}


async def test_events_page_on_after_the_last_one(store, api):
    run_id = await flow.trigger(None).execute(store)
    await flow.pause(run_id, store)
    await flow.resume(run_id, store)
    first = (await api.get(f"{RUNS}/{run_id}/events", params={"limit": 2})).json()["items"]

    rest = (await api.get(f"{RUNS}/{run_id}/events", params={"after": first[-1]["event_id"]})).json()["items"]

    assert [each["event_type"] for each in first + rest] == ["created", "paused", "resumed"]


async def test_a_parents_children_are_listed(store, api, execute):
    await store.create_workflow("child")

    async def parent(ctx):
        await ctx.spawn("child", 1)
        await ctx.spawn("child", 2)

    run_id = await flow.trigger(None).execute(store)
    await execute(parent)

    children = (await api.get(f"{RUNS}/{run_id}/children")).json()["items"]
    assert [(each["workflow"], each["parent_run_id"]) for each in children] == [("child", run_id)] * 2


async def test_a_result_that_is_not_there_yet_is_waited_for(store, api, execute):
    run_id = await flow.trigger(1).execute(store)
    at_once = await api.get(f"{RUNS}/{run_id}/result")
    assert (at_once.status_code, at_once.json()["status"]) == (202, "PENDING")
    waiting = asyncio.create_task(api.get(f"{RUNS}/{run_id}/result", params={"wait": 60}))
    while not store.results._waiting:
        await asyncio.sleep(0)

    await execute(_two_steps)

    assert (await waiting).json() == 4


async def test_a_run_without_a_result_says_how_it_ended(store, api, execute):
    failed = await flow.trigger(None).execute(store)
    await execute(_fails)
    cancelled, deleted = await flow.trigger_many([1, 2]).execute(store)
    await flow.cancel(cancelled, store, reason="not needed")
    await flow.delete(deleted, store)

    answers = [await api.get(f"{RUNS}/{each}/result", params={"wait": 1}) for each in (failed, cancelled, deleted)]

    assert [(each.status_code, each.json()["code"]) for each in answers] == [
        (409, "execution-failed"),
        (409, "run-cancelled"),
        (410, "run-deleted"),
    ]
    assert "no address for c42" in answers[0].json()["detail"]
    assert answers[0].json()["allowed_actions"] == ["restart", "reset", "delete"]


async def test_a_run_that_is_not_there_is_not_found(api):
    for run_id in ("7", "x", "-1", "1.0", "9223372036854775807", "9223372036854775808", "9" * 400, "²"):
        for part in ("", "/steps", "/events", "/result", "/why", "/export", "/children"):
            assert (await api.get(f"{RUNS}/{run_id}{part}")).status_code == 404, (run_id, part)
