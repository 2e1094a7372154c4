"""Mounted into an application of the user's, below a prefix, behind its own way of knowing people."""

import functools
import re
import shlex

import httpx2
import pytest
from fastapi import FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.routing import Mount

import pgqrs
from pgqrs.cli import app as commands
from pgqrs.web import Caller, Scope, app
from rig.command_line import invoke
from rig.http import ON_PURPOSE

flow = pgqrs.workflow("flow")


async def _authorize(request):
    name = request.headers.get("x-user")
    return None if name is None else Caller(name, frozenset(Scope))


def _starlette(ours):
    return Starlette(routes=[Mount("/pgqrs", app=ours)])


def _fastapi(ours):
    around = FastAPI()
    around.mount("/pgqrs", ours)
    return around


@pytest.mark.parametrize("around", [_starlette, _fastapi])
async def test_it_answers_below_its_prefix_and_knows_who_asks(store, around):
    await store.create_workflow("flow")
    ours = app(store, authorize=_authorize, hosts=["jobs.example"])
    headers = {**ON_PURPOSE, "x-user": "ann"}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(around(ours)), base_url="http://jobs.example", headers=headers
    ) as client:
        made = await client.post("/pgqrs/api/v1/runs", json={"workflow": "flow"})
        assert (made.status_code, made.headers["location"]) == (201, "/pgqrs/api/v1/runs/1")
        assert (await client.get(made.headers["location"])).json()["run_id"] == 1
        assert (await client.get("/api/v1/runs")).status_code == 404
        assert (await client.get("/pgqrs/api/v1/runs", headers={"host": "evil.example"})).status_code == 421
        assert (await client.get("/pgqrs/openapi.json")).json()["servers"] == [{"url": "/pgqrs"}]
        assert (await client.get("/pgqrs/healthz")).status_code == 200
        origin = {"origin": "http://jobs.example", "sec-fetch-site": "same-origin"}
        assert (await client.post("/pgqrs/api/v1/runs/1/pause", headers=origin)).status_code == 200
        foreign = {"origin": "http://evil.example"}
        assert (await client.post("/pgqrs/api/v1/runs/1/resume", headers=foreign)).status_code == 403
        del client.headers["x-user"]
        assert (await client.get("/pgqrs/api/v1/runs")).status_code == 401

    assert [each.actor for each in await pgqrs.admin(store).events(1)] == ["ann", "ann"]


def _client(ours, host="jobs.example", **headers):
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(ours), base_url=f"http://{host}", headers={**ON_PURPOSE, **headers}
    )


# -- authorize -----------------------------------------------------------------------------------------------


def _plain(request):
    name = request.headers.get("x-user")
    return None if name is None else Caller(name, frozenset(Scope))


class _Object:
    async def __call__(self, request):
        return _plain(request)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("authorize", [_authorize, _plain, _Object(), functools.partial(_authorize)])
async def test_authorize_may_be_async_or_plain(store, authorize):
    async with _client(app(store, authorize=authorize, hosts=["jobs.example"])) as client:
        known = await client.get("/api/v1/runs", headers={"x-user": "ann"})
        unknown = await client.get("/api/v1/runs")

    assert (known.status_code, unknown.status_code) == (200, 401)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("given", ["ann", 3, Caller("ann", frozenset(Scope))])
async def test_an_authorize_that_cannot_be_called_is_refused_when_it_is_given(store, given):
    with pytest.raises(pgqrs.ConfigError, match="authorize must be a function"):
        app(store, authorize=given)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("given", [True, {"user": "ann", "password": "secret"}, "ann"])
async def test_an_answer_of_authorize_that_is_no_caller_is_an_error_that_tells_strangers_nothing(
    store, given, caplog
):
    async with _client(app(store, authorize=lambda request: given, hosts=["jobs.example"])) as client:
        answered = await client.get("/api/v1/runs")

    assert answered.status_code == 500
    assert answered.json()["detail"] == "the application around this could not tell who asks"
    [record] = [each for each in caplog.records if answered.json()["error_id"] in each.getMessage()]
    assert f"must return a pgqrs.web.Caller or None, not a {type(given).__name__}" in str(record.exc_info[1])
    assert "secret" not in caplog.text
    assert type(given).__name__ not in answered.text


_AS_A_BROWSER = {"accept": "text/html", "sec-fetch-site": "none", "sec-fetch-mode": "navigate"}


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("path", ["/", "/runs", "/login"])
async def test_a_page_says_where_to_log_in_and_that_the_account_may_be_the_wrong_one(store, path):
    """The finding: it led to a log-in page that refused everyone, those who were logged in as well."""
    async with _client(app(store, authorize=_authorize, hosts=["jobs.example"]), **_AS_A_BROWSER) as client:
        unknown = await client.get(path)

    assert unknown.status_code == (403 if path == "/login" else 401)
    assert "log in to the application" in unknown.text
    if path != "/login":
        assert "you are not logged in to this application, or your account may not use this dashboard" in unknown.text


@pytest.mark.backends("sqlite")
async def test_a_caller_without_scopes_learns_that_the_account_may_not_use_the_dashboard(store):
    async def everyone(request):
        return Caller("bob", frozenset())

    async with _client(app(store, authorize=everyone, hosts=["jobs.example"]), **_AS_A_BROWSER) as client:
        page = await client.get("/")
        asked = await client.get("/api/v1/runs")

    assert (page.status_code, asked.status_code) == (403, 403)
    assert "your account may not use this dashboard" in page.text
    assert asked.json()["detail"] == "your account may not use this dashboard"


@pytest.mark.backends("sqlite")
async def test_authorize_may_send_people_to_the_log_in_of_the_application(store):
    async def to_the_log_in(request):
        raise HTTPException(303, headers={"Location": "/login?next=/pgqrs"})

    async with _client(app(store, authorize=to_the_log_in, hosts=["jobs.example"]), **_AS_A_BROWSER) as client:
        page = await client.get("/")
        alive = await client.get("/healthz")

    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/pgqrs")
    assert alive.status_code == 200


# -- hosts ---------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
async def test_an_unnamed_host_is_told_how_a_mounted_application_names_it(store, tmp_path):
    async with _client(app(store, authorize=_authorize), "shop.example") as client:
        refused = await client.get("/api/v1/runs")
    async with _client(app(store, authorize=_authorize, hosts=["shop.example"]), "shop.example") as client:
        named = await client.get("/api/v1/runs", headers={"x-user": "ann"})
    async with _client(app(store, tokens=tmp_path / "pgqrs.tokens"), "shop.example") as client:
        by_token = await client.get("/api/v1/runs")

    assert refused.status_code == 421
    assert refused.json()["hint"] == "name it where it is mounted: pgqrs.web.app(store, ..., hosts=[...])"
    assert named.status_code == 200
    assert "hosts=[...]" in by_token.json()["hint"]
    assert "--allow-host of `pgqrs serve`" in by_token.json()["hint"]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("shop.example.org", r"write hosts=\['shop.example.org'\]"),
        (["shop.example.org:8000"], r"without a scheme, a port or a path; write 'shop.example.org'"),
        (["https://shop.example.org"], "without a scheme"),
        (["shop.example.org/jobs"], "without a scheme"),
        ([None], "must be a name"),
    ],
)
async def test_a_host_that_no_request_could_name_is_refused_when_it_is_given(store, given, said):
    with pytest.raises(pgqrs.ConfigError, match=said):
        app(store, authorize=_authorize, hosts=given)


# -- files of tokens -----------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
async def test_a_folder_that_does_not_exist_is_an_error_and_a_file_a_line_in_the_log(store, tmp_path, caplog):
    with pytest.raises(pgqrs.ConfigError, match="there is no folder"):
        app(store, tokens=tmp_path / "nowhere/pgqrs.tokens")
    app(store, tokens=tmp_path / "later.tokens")

    assert "later.tokens does not exist, so all callers are refused" in caplog.text
    assert f"pgqrs token create --scope=read --file={tmp_path / 'later.tokens'} NAME" in caplog.text


@pytest.mark.backends("sqlite")
async def test_the_hint_of_a_401_makes_a_token_that_is_let_in(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours = app(store, tokens="tokens.jsonl")
    async with _client(ours, "localhost") as client:
        refused = await client.get("/api/v1/runs")
        line = re.search(r"`(pgqrs token create .*)` makes one", refused.json()["hint"]).group(1)
        made = await invoke(commands.tree(), [*shlex.split(line)[1:-1], "ann"], monkeypatch)
        known = await client.get("/api/v1/runs", headers={"authorization": f"Bearer {made.out.strip()}"})

    assert refused.status_code == 401
    assert line == "pgqrs token create --scope=read --file=tokens.jsonl NAME"
    assert known.status_code == 200


@pytest.mark.backends("sqlite")
async def test_a_stranger_is_not_told_the_folder_of_the_tokens(store, tmp_path):
    async with _client(app(store, tokens=tmp_path / "pgqrs.tokens"), "localhost") as client:
        refused = await client.get("/api/v1/runs")

    assert str(tmp_path) not in refused.text
    assert "--file=.../pgqrs.tokens" in refused.json()["hint"]
