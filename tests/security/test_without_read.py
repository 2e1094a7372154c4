"""A caller without the scope `read` learns nothing that needs it: every route, every such scope, broken and well formed."""

import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

import pgqrs
from pgqrs.web import Scope
from pgqrs.web.application import endpoints
from pgqrs.web.auth import tokens as kept
from pgqrs.web.auth.access import implied
from pgqrs.web.routing import Endpoint
from rig.http import filled, named
from rig.served import Served, serving

pytestmark = pytest.mark.backends("sqlite")

# Stands in everything that only `read` may see, and in nothing that the caller says itself.
SECRET = b"s3cret"
BLIND = [scope for scope in Scope if Scope.READ not in implied([scope])]
FORM = "application/x-www-form-urlencoded"
# Fields of bodies and forms: what a route takes, and what it cannot use.
GOOD = {
    "workflow": "flow", "params": 1, "payload": 1, "name": "go", "approved": True, "verb": "cancel", "filter": "",
    "everything": True, "which": "all", "cron": "0 3 * * *", "input": "1", "field.s3cret_field": "1",
}  # fmt: skip
BROKEN = {"input": "{", "payload": "{", "delay": "never", "decision": "data", "data": "{", "key": "\0", "verb": "no"}
flow = pgqrs.workflow("flow")


async def failing(ctx, s3cret_field: int) -> None:
    await ctx.step("s3cret_step", lambda: "s3cret")
    raise pgqrs.PermanentError("s3cret error")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def tokens(file):
    return {scope: kept.create(file, f"a_{scope}", [scope]) for scope in Scope}


@pytest.fixture
async def planted(store):
    """Something under each name that a caller may guess, full of what it must not see; others beside it."""
    worker = await pgqrs.worker("s3cret_worker").workflows({"flow": failing}).create(store)
    await flow.trigger({"s3cret_field": 7}, idempotency_key="k").execute(store)
    await worker.run_until_idle()
    run_id = await flow.trigger({"s3cret_field": 8}, attributes={"about": "s3cret"}).execute(store)
    await store.create_workflow("flow_s3cret")
    for queue in ("tasks", "tasks_s3cret"):
        await store.create_queue(queue)
        await (await store.producer(queue)).enqueue({"text": "s3cret"})
    for schedule in ("nightly", "nightly_s3cret"):
        await pgqrs.schedules(store).create(schedule, "flow_s3cret", cron="0 3 * * *", params="s3cret")
    yield {"run_id": run_id, "worker_id": worker.worker_id}
    await worker.close()


def paths_of(endpoint: Endpoint, planted: dict[str, int]) -> Iterator[str]:
    """Of what is there, of what is nearly there (which would be suggested), and of nothing."""
    noun = endpoint.path.removeprefix("/api/v1").split("/")[1]
    of_noun = {"workflows": "flow", "queues": "tasks", "schedules": "nightly"}.get(noun, "go")
    yield filled(endpoint, name=of_noun, **planted)
    near = {name: f"{name_of}_s3cre" for name, name_of in (("workflow", "flow"), ("queue", "tasks"))}
    yield filled(endpoint, **near, schedule="nightly_s3cre", name=f"{of_noun}_s3cre", run_id=999, worker_id=999)


def bodies_of(endpoint: Endpoint) -> Iterator[tuple[str, bytes]]:
    yield "application/json", b""
    if not endpoint.changes:
        return
    takes = () if endpoint.takes is None else endpoint.takes.__struct_fields__
    for thing in {name: GOOD[name] for name in takes if name in GOOD}, {"nobody": 1}, {key: [] for key in takes}:
        yield "application/json", json.dumps(thing).encode()
    yield "application/json", b"{"
    for form in GOOD, BROKEN, {**GOOD, **BROKEN}, {}:
        yield FORM, urlencode(form).encode()
    yield FORM, b"name=a&name=b&key=a&key=b&input=1&input=2&delay=1s&delay=2s"


async def ask(served: Served, endpoint: Endpoint, token: str, path: str, kind: str, body: bytes):
    accept = "text/html" if endpoint.page else "*/*"
    return await served.ask(
        endpoint.method, path, body, accept=accept, content_type=kind, **served.bearer(token)
    )  # fmt: skip


@pytest.mark.parametrize("scope", BLIND)
async def test_no_route_shows_what_needs_read(config, store, file, tokens, planted, scope):
    """The finding: a broken trigger form was answered with the whole page of the workflow."""
    answered, done = 0, set()
    async with serving(config, "--tokens", file, "--rate", "0") as served:
        for endpoint in endpoints():
            for path in paths_of(endpoint, planted):
                for kind, body in bodies_of(endpoint):
                    got = await ask(served, endpoint, tokens[scope], path, kind, body)
                    answered += 1

                    told = got.body + json.dumps(got.headers).encode()
                    assert SECRET not in told.lower(), (named(endpoint), path, body, got.status, got.body)
                    if got.status < 400 and endpoint.scope is scope:
                        done.add(endpoint)

    assert answered > 500
    # Where the caller has the scope, one of the requests was well formed.
    assert done == {each for each in endpoints() if each.scope is scope}


async def test_what_is_planted_would_be_seen(config, store, file, tokens, planted):
    """The test above can fail: a caller that may read is shown it all over the place."""
    async with serving(config, "--tokens", file, "--rate", "0") as served:
        seen = set()
        for endpoint in endpoints():
            if not endpoint.changes and endpoint.path != "/stream":
                got = await ask(served, endpoint, tokens[Scope.READ], next(paths_of(endpoint, planted)), "*/*", b"")
                seen |= {endpoint.path} if SECRET in got.body else set()

    assert {"/workflows/{name}", "/schedules/{name}/confirm/trigger", "/queues", "/workers", "/failures"} <= seen
    assert len(seen) > 20
