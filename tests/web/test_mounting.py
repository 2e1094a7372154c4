"""Mounted into an application of the user's, below a prefix, behind its own way of knowing people."""

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

import pgqrs
from pgqrs.web import Caller, Scope, app
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
