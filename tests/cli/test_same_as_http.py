"""`-o json` prints exactly what the HTTP API answers with."""

import pytest

import pgqrs
from rig import http

flow = pgqrs.workflow("flow")
API = "/api/v1"

# A command, and the path that answers with the same.
SAME = [
    (("run", "list"), "/runs"),
    (
        ("run", "list", "--status", "error", "--attr", "customer=c1", "--limit", "1"),
        "/runs?status=error&attr=customer%3Dc1&limit=1",
    ),
    (("run", "list", "--where", "workflow:fl*"), "/runs?q=workflow:fl*"),
    (("run", "get", "1"), "/runs/1"),
    (("run", "steps", "1"), "/runs/1/steps"),
    (("run", "events", "1"), "/runs/1/events"),
    (("run", "why", "1"), "/runs/1/why"),
    (("run", "result", "1"), "/runs/1/result"),
    (("workflow", "list"), "/workflows"),
    (("workflow", "get", "flow"), "/workflows/flow"),
    (("queue", "list"), "/queues"),
    (("queue", "get", "tasks"), "/queues/tasks"),
    (("queue", "dead", "tasks"), "/queues/tasks/dead"),
    (("queue", "peek", "tasks"), "/queues/tasks/messages"),
    (("worker", "list"), "/workers"),
    (("schedule", "list"), "/schedules"),
    (("schedule", "get", "nightly"), "/schedules/nightly"),
    (("schedule", "next", "nightly"), "/schedules/nightly/next"),
    (("schedule", "slots", "nightly"), "/schedules/nightly/slots"),
    (("outbox", "list"), "/outbox"),
    (("outbox", "dead"), "/outbox/dead"),
    (("failures",), "/failures"),
    (("stats",), "/stats"),
]
# What differs from one moment to the next, or only one of them knows: where the next page begins, when all was shown.
PASSING = ("age_seconds", "database_bytes", "next_cursor")


def _lasting(told):
    if isinstance(told, dict):
        return {name: _lasting(value) for name, value in told.items() if not name.endswith(PASSING)}
    return [_lasting(each) for each in told] if isinstance(told, list) else told


@pytest.fixture
async def furnished(live_store):
    """One of each, on the database's own clock, which is also the command line's."""
    store = live_store
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *", params={"n": 1})
    await (await store.producer("tasks")).enqueue_many([{"n": 1}, {"n": 2}], max_attempts=1)
    await flow.trigger(20, attributes={"customer": "c1"}).execute(store)
    await flow.trigger(None, attributes={"customer": "c1"}).execute(store)

    async def handler(ctx, n):
        async def double():
            return 2 * n

        return await ctx.step("double", double)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    yield store
    await worker.close()


async def test_every_noun_is_told_alike(furnished, command):
    async with http.client(furnished) as api:
        for words, path in SAME:
            said = await command(*words, "-o", "json")
            answer = await api.get(API + path)
            assert (said.code, answer.status_code) == (0, 200), (words, said.err, answer.text)
            assert _lasting(said.json) == _lasting(answer.json()), words


def test_every_list_and_every_noun_is_compared():
    """A route that gives a list or a record is in the table above, or says here why no command prints the same."""
    compared = {path.partition("?")[0] for _, path in SAME}
    others = {
        # No command of its own.
        "/runs/{run_id}/children",
        "/outbox/counts",
        # As `workflow get`, over another time.
        "/workflows/{workflow}/metrics",
        # Written by others at the same time.
        "/workers/{worker_id}",
        "/runs/{run_id}/export",
        # Sees more connections than the command did; and the tests' own server is not durable, which is bad.
        "/doctor",
    }
    paths = {
        each.path.removeprefix(API)
        for each in http.api_routes()
        if each.method == "GET" and each.path.startswith(API)
    }
    named = {"1": "{run_id}", "flow": "{workflow}", "tasks": "{queue}", "nightly": "{schedule}"}
    known = {"/".join(named.get(part, part) for part in path.split("/")) for path in compared}

    assert paths - others == known
