"""What a token of each scope can and cannot do, on a real server; and that what it does is written down."""

import asyncio

import pytest

import pgqrs
from pgqrs.web import Scope
from pgqrs.web.application import endpoints
from pgqrs.web.auth import tokens as kept
from pgqrs.web.auth.access import implied
from rig.http import Stream, client, filled
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")

API = "/api/v1"
RUNS = f"{API}/runs"
flow = pgqrs.workflow("flow")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def tokens(file):
    return {scope: kept.create(file, f"a_{scope}", [scope]) for scope in Scope}


async def answered_by(ctx, params=None):
    answer = await ctx.wait_for("approval", type=pgqrs.Answer)
    return {"value": answer.value, "actor": answer.actor}


@pytest.fixture
async def waiting(store):
    """A run that waits for approval, and its worker."""
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(answered_by).create(store)
    run_id = await flow.trigger({"secret": "s3cret"}).execute(store)
    await worker.run_until_idle()
    yield run_id, worker
    await worker.close()


async def test_every_route_asks_for_its_scope(config, store, file, tokens):
    """The matrix of all routes and all scopes, with the table of routes as the oracle."""
    await store.create_workflow("flow")
    async with serving(config, "--tokens", file, "--rate", "0") as served:
        for endpoint in endpoints():
            if endpoint.scope is None or endpoint.path == "/stream":
                continue
            for scope, token in tokens.items():
                answered = await served.ask(endpoint.method, filled(endpoint), **served.bearer(token))
                may = endpoint.scope in implied([scope])

                assert (answered.status == 403) is not may, (endpoint.method, endpoint.path, scope, answered.body)


async def test_a_producer_cannot_approve(config, store, file, tokens, waiting):
    """The finding: scope `trigger` sent `{"approved": true, "by": "ceo"}` as a signal."""
    run_id, worker = waiting
    forged = {"payload": {"approved": True, "by": "ceo"}}
    async with serving(config, "--tokens", file) as served:
        for path in (f"{RUNS}/{run_id}/signals/approval", f"{RUNS}/{run_id}/answer", f"{RUNS}/{run_id}/resume"):
            refused = await served.post(path, forged, **served.bearer(tokens[Scope.TRIGGER]))
            assert refused.status == 403, path
        refused = await served.post(
            f"{RUNS}/{run_id}/signals/approval", forged, **served.bearer(tokens[Scope.TRIGGER])
        )
        assert (refused.json["needed"], "token grant" in refused.json["hint"]) == ("signal", True)
        await worker.run_until_idle()
        assert (await flow.get_run(run_id, store)).status == "PAUSED"

        sent = await served.post(f"{RUNS}/{run_id}/signals/approval", forged, **served.bearer(tokens[Scope.SIGNAL]))
        assert (sent.status, sent.json) == (200, {"run_id": run_id})

    await worker.run_until_idle()
    # The payload says ceo; who it was stands beside it.
    assert (await flow.get_run(run_id, store)).output() == {
        "value": {"approved": True, "by": "ceo"},
        "actor": "a_signal",
    }


@pytest.mark.parametrize("by", ["answer", "signal"])
async def test_an_approval_carries_the_caller_beside_the_payload(config, store, file, tokens, waiting, by):
    run_id, worker = waiting
    async with serving(config, "--tokens", file) as served:
        operate = served.bearer(tokens[Scope.OPERATE])
        if by == "answer":
            done = await served.post(f"{RUNS}/{run_id}/answer", {"approved": True, "comment": "fine"}, **operate)
        else:
            given = {"payload": {"approved": True, "comment": "fine"}}
            done = await served.post(f"{RUNS}/{run_id}/signals/approval", given, **operate)
        assert done.status == 200, done.body

    await worker.run_until_idle()
    value = {"approved": True, "comment": "fine"}
    assert (await flow.get_run(run_id, store)).output() == {"value": value, "actor": "a_operate"}


@pytest.mark.parametrize("scope", [Scope.TRIGGER, Scope.SIGNAL])
async def test_a_token_that_may_not_read_learns_no_names_and_no_statuses(config, store, file, tokens, waiting, scope):
    run_id, _ = waiting
    await store.create_workflow("flow_of_the_ceo")
    await flow.cancel(run_id, store, reason="s3cret reason")
    await flow.trigger({"secret": "s3cret"}, idempotency_key="k").execute(store)
    asked = [
        ("POST", RUNS, {"workflow": "flow_of_the_coo"}),
        ("POST", RUNS, {"workflow": "flow", "params": 5, "idempotency_key": "k"}),
        ("POST", RUNS, {"workflow": "flow", "require_worker": True}),
        ("POST", f"{API}/queues/nowhere/messages", {"payload": 1}),
        ("POST", f"{API}/schedules/nightly/trigger", None),
        ("POST", f"{RUNS}/{run_id}/signals/go", {"payload": 1}),
        ("POST", f"{RUNS}/999/signals/go", {"payload": 1}),
    ]
    async with serving(config, "--tokens", file) as served:
        for _, path, thing in asked:
            answered = await served.post(path, thing, **served.bearer(tokens[scope]))

            for secret in (b"ceo", b"s3cret", b"CANCELLED", b"current_status", b"allowed_actions", b"did you mean"):
                assert secret not in answered.body, (path, answered.body)
        operate = served.bearer(tokens[Scope.OPERATE])
        told = await served.post(f"{RUNS}/{run_id}/signals/go", {"payload": 1}, **operate)
        assert told.json["current_status"] == "CANCELLED"


async def test_a_producer_learns_whether_a_name_exists_and_a_worker_serves_it(store, file, tokens):
    """What the threat model says that it learns, and no more: the body is the same for every name that is not there."""
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *")
    bearer = {"authorization": f"Bearer {tokens[Scope.TRIGGER]}"}
    asked = [
        (RUNS, {"workflow": "flow"}, {"workflow": "flaw"}),
        (f"{API}/queues/{{}}/messages", "tasks", "task"),
        (f"{API}/schedules/{{}}/trigger", "nightly", "nightl"),
    ]
    async with client(store, tokens=file, headers=bearer) as http:
        for path, there, missing in asked:
            names = isinstance(there, str)
            found, absent = [
                await http.post(path.format(each) if names else path, json={} if names else each)
                for each in (there, missing)
            ]

            assert (found.status_code, absent.status_code) == (201, 404), path
            assert absent.json()["detail"] == "there is nothing of that name or number"
        triggered = await http.post(RUNS, json={"workflow": "flow"})

    assert triggered.json()["warnings"] == ["no live worker serves workflow 'flow': the run waits in its queue"]


async def test_a_producer_is_told_what_is_wrong_with_its_input(config, store, file, tokens):
    async def bill(ctx, customer: str, amount: int):
        return customer

    await store.create_workflow("bill")
    worker = await pgqrs.consumer("w", 0, "bill").handler(bill).create(store)
    async with serving(config, "--tokens", file) as served:
        producer = served.bearer(tokens[Scope.TRIGGER])
        named = await served.post(RUNS, {"workflow": "bill", "params": {"custmer": "ann", "amount": 5}}, **producer)
        typed = await served.post(
            RUNS, {"workflow": "bill", "params": {"customer": "ann", "amount": "x"}}, **producer
        )
    await worker.close()

    assert (named.status, typed.status) == (422, 422)
    assert "customer" in named.json["hint"]
    assert "'amount' must be an int" in typed.json["detail"]


async def test_what_was_done_is_in_the_audit_log(config, store, file, tokens, waiting):
    """The finding: `pgqrs serve` never wrote its audit log."""
    run_id, _ = waiting
    for options in (), ("--quiet",), ("--log-format", "json"):
        async with serving(config, "--tokens", file, *options) as served:
            operate = served.bearer(tokens[Scope.OPERATE])
            assert (await served.post(f"{RUNS}/{run_id}/signals/a%0Aforged%20line", **operate)).status in (200, 422)
            assert (await served.post(f"{API}/workflows/flow/pause", **operate)).status == 200
            assert (
                await served.post(f"{API}/workflows/flow/pause", **served.bearer(tokens[Scope.READ]))
            ).status == 403
            await served.get(f"{API}/stats", **operate)

        lines = [line for line in served.said.splitlines() if "/workflows/flow/pause" in line]
        assert len(lines) == 1, served.said
        assert "POST /api/v1/workflows/flow/pause by a_operate from 127.0.0.1" in lines[0]
        assert not [line for line in served.said.splitlines() if line.startswith("forged")]
        assert all(token not in served.said for token in tokens.values())


async def test_a_revoked_token_hears_no_more_while_events_arrive(config, store, file, tokens):
    """The finding: a stream was looked at only while nothing happened."""
    await store.create_workflow("flow")
    async with serving(config, "--tokens", file) as served:
        stream = await Stream.open(served.port, Authorization=f"Bearer {tokens[Scope.READ]}")
        assert stream.status == 200
        kept.revoke(file, "a_read")
        ended = asyncio.create_task(stream.ended(30))
        while not ended.done():
            await flow.trigger(None).execute(store)
            await asyncio.wait({ended}, timeout=0.2)

        assert ended.result()
        await stream.close()


async def test_strangers_are_told_whether_it_lives_and_nothing_else(config, store, file, tokens):
    async with serving(config, "--tokens", file) as served:
        for path in ("/healthz", "/readyz"):
            assert (await served.get(path)).json == {"status": "ok"}
        for path in ("/version", "/openapi.json", "/metrics", f"{API}/stats", "/stream"):
            refused = await served.get(path)
            assert refused.status == 401
            assert pgqrs.__version__.encode() not in refused.body
            if path != "/stream":
                assert (await served.get(path, **served.bearer(tokens[Scope.READ]))).status == 200
        for path in ("/", "/login", "/nowhere", "/static/app.js"):
            answered = await served.get(path)
            assert pgqrs.__version__.encode() not in answered.body
            assert "server" not in answered.headers
