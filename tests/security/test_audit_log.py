"""The audit log has a line for every change, and for what may have been changed by a request that did not end well."""

import asyncio
import dataclasses
import logging
from urllib.parse import quote, unquote

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import pgqrs
from pgqrs.api.operations import search
from pgqrs.db.runs import transitions
from pgqrs.web import Scope
from pgqrs.web.application import endpoints
from pgqrs.web.auth import tokens as kept
from pgqrs.web.pages import runs as runs_page
from pgqrs.web.routing import MOST_SECONDS
from rig import http
from rig.http import ON_PURPOSE
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")

FORM = ON_PURPOSE | {"content-type": "application/x-www-form-urlencoded"}
BULK = {"verb": "cancel", "everything": True, "dry_run": False}
# The same verb by the API, by the form for a filter, and by the form for ticked runs.
WAYS = {
    "api": ("/api/v1/bulk", {"json": BULK}),
    "filter": ("/runs/bulk", {"content": b"verb=cancel&which=all", "headers": FORM}),
    "ticked": ("/runs/bulk", {"content": b"verb=cancel&run=1&run=2&run=3&run=4", "headers": FORM}),
}
flow = pgqrs.workflow("flow")


@pytest.fixture
def lines(caplog):
    """What the audit log says of a bulk verb."""
    caplog.set_level(logging.INFO, "pgqrs.audit")
    return lambda: [each.getMessage() for each in caplog.records if each.name == "pgqrs.audit"]


@pytest.fixture
async def four_runs(store):
    await store.create_workflow("flow")
    return [await flow.trigger(None).execute(store) for _ in range(4)]


@pytest.fixture
def third(monkeypatch):
    """Does something in place of cancelling the third run."""

    def cancelling(instead):
        calls = []

        async def cancel(db, run_id, **given):
            calls.append(run_id)
            if len(calls) == 3:
                await instead()
            return await transitions.cancel(db, run_id, **given)

        async def act(store, run_id, verb, **given):
            await cancel(await store.ready(), run_id, **given)

        monkeypatch.setattr(search, "transitions", type("Transitions", (), {"cancel": staticmethod(cancel)}))
        monkeypatch.setattr(runs_page, "act", act)

    return cancelling


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (TimeoutError(), "timed out"),
        (pgqrs.ConnectionFailed("gone"), "ended with connection-failed"),
        (RuntimeError("broken"), "failed"),
    ],
    ids=["timeout", "connection", "bug"],
)
async def test_a_bulk_verb_that_ends_midway_is_in_the_log(store, four_runs, lines, third, way, error, ending):
    """The finding: runs were cancelled, and no line told who did it."""

    async def fail():
        raise error

    third(fail)
    path, given = WAYS[way]
    async with http.client(store) as client:
        answer = await client.post(path, **given)

    assert answer.status_code >= 500
    assert len(await pgqrs.admin(store).runs("status:cancelled")) == 2
    assert lines() == [
        f"POST {path} by local from 127.0.0.1: begun",
        f"POST {path} by local from 127.0.0.1: {ending} after 2 were handled; more may have been",
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_a_bulk_verb_that_is_cancelled_is_in_the_log(store, four_runs, lines, third, way):
    """As a server does that cancels what a client has left, or that stops."""
    reached = asyncio.Event()

    async def hang():
        reached.set()
        await asyncio.Event().wait()

    third(hang)
    path, given = WAYS[way]
    async with http.client(store) as client:
        asking = asyncio.create_task(client.post(path, **given))
        await reached.wait()
        assert lines() == [f"POST {path} by local from 127.0.0.1: begun"]
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    assert lines()[1:] == [
        f"POST {path} by local from 127.0.0.1: was interrupted after 2 were handled; more may have been"
    ]


async def test_the_time_limit_of_a_route_leaves_a_line(store, four_runs, lines, third, monkeypatch):
    [bulk] = [each for each in endpoints() if each.path == "/api/v1/bulk"]
    monkeypatch.setattr("pgqrs.web.application.endpoints", lambda **_: [dataclasses.replace(bulk, seconds=0.2)])
    third(asyncio.Event().wait)
    async with http.client(store) as client:
        answer = await client.post("/api/v1/bulk", json=BULK)

    assert (answer.status_code, answer.json()["code"]) == (503, "too-slow")
    [line] = lines()
    assert line.startswith("POST /api/v1/bulk by local from 127.0.0.1: timed out")


@pytest.mark.parametrize("way", WAYS)
async def test_a_bulk_verb_that_ends_well_says_how_many(store, four_runs, lines, way):
    path, given = WAYS[way]
    async with http.client(store) as client:
        assert (await client.post(path, **given)).status_code == 200

    assert lines()[-1] == f"POST {path} by local from 127.0.0.1: 4 handled"


async def test_every_changing_route_leaves_a_line_when_its_handler_fails(store, lines, monkeypatch):
    """Over the table: there is no way past the log."""

    async def fail(asked):
        raise TimeoutError

    table = [dataclasses.replace(each, handler=fail, takes=None, query=None) for each in http.changing()]
    monkeypatch.setattr("pgqrs.web.application.endpoints", lambda **_: table)
    async with http.client(store) as client:
        for endpoint in table:
            before = len(lines())
            path = http.filled(endpoint)
            assert (await client.request(endpoint.method, path)).status_code == 503
            begun = ["begun"] if endpoint.seconds > MOST_SECONDS else []
            told = [
                f"{endpoint.method} {path} by local from 127.0.0.1: {each}"
                for each in (*begun, "timed out; it may have been done")
            ]

            assert lines()[before:] == told


async def test_what_was_refused_is_told_as_such(store, four_runs, lines):
    async with http.client(store) as client:
        await client.post("/api/v1/runs/1/cancel")
        await client.post("/api/v1/runs/1/pause")
        await client.post("/runs/2/signal", content=b"payload={", headers=FORM)

    assert lines() == [
        "POST /api/v1/runs/1/cancel by local from 127.0.0.1",
        "POST /api/v1/runs/1/pause by local from 127.0.0.1: ended with invalid-transition",
        "POST /runs/2/signal by local from 127.0.0.1: answered with 422",
    ]


async def test_a_real_server_tells_of_a_long_verb_before_and_after(config, store, four_runs, tmp_path):
    """Should the server be killed in between, the first line is there."""
    token = kept.create(tmp_path / "tokens", "op", [Scope.OPERATE])
    async with serving(config, "--tokens", tmp_path / "tokens") as served:
        assert (await served.post("/api/v1/bulk", BULK, **served.bearer(token))).status == 200

    told = [line.rpartition("127.0.0.1")[2] for line in served.said.splitlines() if "/api/v1/bulk by op" in line]
    assert told == [": begun", ": 4 handled"]


@pytest.mark.parametrize("name", ["a?b", "a%3Fb", "a\\b", "a#b", "a\nb", "a by root from 10.0.0.1", "\u2028", "é%"])
async def test_a_line_has_the_name_that_was_asked_for_and_no_other(store, lines, name):
    """The finding: signals `a?b` and `a%3Fb` had the same line, and that of `a\\nb` named `ab`."""
    await store.create_workflow("flow")
    run_id = await flow.trigger(None).execute(store)
    async with http.client(store) as client:
        await client.post(f"/api/v1/runs/{run_id}/signals/{quote(name, safe='')}", json={})

    [line] = lines()
    path = line.split(" ")[1]
    assert (unquote(path), line.count(" by "), line.isprintable()) == (
        f"/api/v1/runs/{run_id}/signals/{name}",
        1,
        True,
    )


async def test_a_mounted_application_has_the_whole_path_in_its_lines(store, lines):
    mounted = Starlette(routes=[Mount("/jobs", http.opened(store, read_only=False))])
    await store.create_workflow("flow")
    run_id = await flow.trigger(None).execute(store)
    transport = httpx2.ASGITransport(mounted, client=("127.0.0.1", 5555))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=ON_PURPOSE) as client:
        await client.post(f"/jobs/api/v1/runs/{run_id}/cancel", json={})

    assert lines() == [f"POST /jobs/api/v1/runs/{run_id}/cancel by local from 127.0.0.1"]
