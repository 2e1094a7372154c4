"""Acting on runs over HTTP: each verb, who did it, and what a state forbids."""

import pytest

import pgqrs
from pgqrs.api.operations.run_actions import _ALLOWED, ACTIONS
from rig.failures import Failures, failed_family

flow = pgqrs.workflow("flow")
RUNS = "/api/v1/runs"


@pytest.fixture
async def run_id(store):
    await store.create_workflow("flow")
    return await flow.trigger(None).execute(store)


async def _fails(ctx):
    raise pgqrs.PermanentError("no")


async def test_each_verb_answers_with_the_run_as_it_is_then(store, api, run_id, execute):
    async def done(verb, body=None):
        answer = await api.post(f"{RUNS}/{run_id}/{verb}", **({} if body is None else {"json": body}))
        assert answer.status_code == 200, answer.text
        return answer.json()["status"]

    assert await done("pause", {"reason": "lunch"}) == "PAUSED"
    assert await done("resume", {}) == "PENDING"
    await execute(_fails)
    assert await done("restart") == "PENDING"
    assert await done("cancel", {"reason": "not needed"}) == "CANCELLED"
    assert await done("reset", {}) == "PENDING"
    assert (await api.post(f"{RUNS}/{run_id}/delete", json={"reason": "typo"})).json()["delete_reason"] == "typo"
    assert (await api.post(f"{RUNS}/{run_id}/restore")).json()["deleted_at"] is None


async def test_whoever_acts_stands_in_the_history(store, api, run_id, execute):
    for verb in ("pause", "resume", "signals/go", "cancel", "restart", "delete", "restore"):
        assert (await api.post(f"{RUNS}/{run_id}/{verb}")).status_code == 200

    events = await pgqrs.admin(store).events(run_id)
    told = [(each.event_type, each.actor) for each in events if each.event_type != "created"]
    kinds = ("paused", "resumed", "signalled", "cancelled", "restarted", "deleted", "restored")
    assert told == [(kind, "local") for kind in kinds]


@pytest.mark.parametrize("status", [pgqrs.RunStatus.SUCCESS, pgqrs.RunStatus.ERROR, pgqrs.RunStatus.CANCELLED])
async def test_what_a_state_forbids_is_told_with_what_it_allows(store, api, run_id, execute, status):
    async def ends(ctx):
        if status is pgqrs.RunStatus.ERROR:
            raise pgqrs.PermanentError("no")

    if status is pgqrs.RunStatus.CANCELLED:
        await flow.cancel(run_id, store)
    else:
        await execute(ends)

    refused = set()
    for action in set(ACTIONS) - set(_ALLOWED[status]):
        path = "signals/go" if action == "signal" else action
        answer = await api.post(f"{RUNS}/{run_id}/{path}")
        told = answer.json()
        assert (answer.status_code, told["current_status"]) == (409, str(status)), told
        assert set(told["allowed_actions"]) <= set(_ALLOWED[status])
        assert told["code"] in ("invalid-transition", "already-completed")
        refused.add(action)

    assert refused == set(ACTIONS) - set(_ALLOWED[status])
    assert refused


async def test_a_signal_reaches_the_run_that_waits_for_it(store, api, run_id, execute):
    async def waits(ctx):
        return await ctx.wait_for("go")

    await execute(waits)
    sent = await api.post(f"{RUNS}/{run_id}/signals/go", json={"payload": {"by": "ann"}})
    await execute(waits)

    assert sent.json() == {"run_id": run_id}
    assert (await api.get(f"{RUNS}/{run_id}/result")).json() == {"by": "ann"}


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"approved": True, "comment": "fine"}, {"approved": True, "comment": "fine"}),
        ({"approved": False}, {"approved": False, "comment": None}),
        ({"data": [1, 2]}, [1, 2]),
        ({"data": None}, None),
    ],
)
async def test_a_run_that_waits_for_a_person_gets_the_answer(store, api, run_id, execute, answer, result):
    async def waits(ctx):
        return await ctx.wait_for("approve")

    await execute(waits)
    assert (await api.post(f"{RUNS}/{run_id}/answer", json=answer)).status_code == 200
    await execute(waits)

    assert (await api.get(f"{RUNS}/{run_id}/result")).json() == result


async def test_an_answer_that_says_nothing_or_too_much_is_refused(api, run_id):
    assert (await api.post(f"{RUNS}/{run_id}/answer", json={})).status_code == 422
    assert (await api.post(f"{RUNS}/{run_id}/answer", json={"approved": True, "data": 1})).status_code == 422
    unasked = await api.post(f"{RUNS}/{run_id}/answer", json={"approved": True})
    assert (unasked.status_code, unasked.json()["current_status"]) == (409, "PENDING")


async def test_a_bulk_verb_counts_first_and_acts_when_it_is_told_to(store, api, execute):
    await store.create_workflow("flow")
    await flow.trigger_many(range(3)).execute(store)
    asked = {"verb": "cancel", "filter": "workflow:flow", "reason": "spring is over"}

    planned = (await api.post("/api/v1/bulk", json=asked)).json()
    assert (planned["dry_run"], planned["matched"]["count"], planned["done"]) == (True, 3, 0)
    assert (await pgqrs.admin(store).count_runs("status:pending")).count == 3
    done = (await api.post("/api/v1/bulk", json={**asked, "dry_run": False})).json()

    assert (done["dry_run"], done["done"]) == (False, 3)
    event = (await pgqrs.admin(store).events(1))[-1]
    assert (event.event_type, event.actor, event.data) == ("cancelled", "local", {"reason": "spring is over"})


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "body",
    [
        {"verb": "cancel"},
        {"verb": "explode", "filter": "status:error"},
        {"verb": "cancel", "filter": "colour:red"},
        {"verb": "cancel", "filter": "status:error", "dry_run": "no"},
        {"filter": "status:error"},
    ],
)
async def test_a_bulk_verb_that_cannot_be_meant_is_refused(store, api, run_id, body):
    assert (await api.post("/api/v1/bulk", json=body)).status_code == 422


async def test_restart_and_delete_take_what_makes_sense_for_them(store, api, run_id, execute):
    await execute(_fails)
    restarted = await api.post("/api/v1/bulk", json={"verb": "restart", "filter": "workflow:flow", "dry_run": False})
    assert restarted.json()["done"] == 1
    await execute(_fails)
    deleted = await api.post("/api/v1/bulk", json={"verb": "delete", "everything": True, "dry_run": False})

    assert deleted.json()["done"] == 1
    assert (await api.get(RUNS)).json()["items"] == []


@pytest.mark.breaks("I4")
async def test_failed_children_are_retried_and_their_parent_says_that_this_is_possible(store, api):
    parent, [child] = await failed_family(await Failures(store).begin())
    before = (await api.get(f"{RUNS}/{parent}")).json()["allowed_actions"]

    answer = await api.post(f"{RUNS}/{parent}/retry-children")
    again = await api.post(f"{RUNS}/{parent}/retry-children")

    assert before == ["retry-children", "restart", "reset", "delete"]
    assert (await api.get(f"{RUNS}/{child}")).json()["allowed_actions"] == [
        "pause",
        "signal",
        "reset",
        "cancel",
        "delete",
    ]
    assert (answer.status_code, answer.json()["status"]) == (200, "PENDING")
    assert (again.status_code, again.json()["code"], again.json()["current_status"]) == (
        409, "invalid-transition", "PENDING",
    )  # fmt: skip
    assert "was restarted already" in again.json()["detail"]


async def test_a_run_that_is_restarted_twice_answers_once(store, api, run_id):
    await flow.cancel(run_id, store)

    answers = [await api.post(f"{RUNS}/{run_id}/restart") for _ in range(2)]

    assert [each.status_code for each in answers] == [200, 409]
    assert "was restarted already" in answers[1].json()["detail"]


@pytest.mark.parametrize("body", [{"action": "cancel"}, {"filter": "status:error"}])
async def test_a_body_with_a_wrong_or_a_missing_field_names_the_fields(api, store, body):
    answered = await api.post("/api/v1/bulk", json=body)

    assert answered.status_code == 422
    assert answered.json()["hint"] == "it takes verb, filter, dry_run, reason, everything"
