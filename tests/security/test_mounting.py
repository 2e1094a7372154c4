"""Mounted into an application: without a way to know its users there is no dashboard."""

import httpx2
import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.routing import Mount

import pgqrs
from pgqrs.web import Caller, Scope, app
from pgqrs.web.application import endpoints
from rig import http
from rig.http import filled

pytestmark = pytest.mark.backends("sqlite")


@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"read_only": False}, {"hosts": ["shop.example"]}])
async def test_mounting_without_knowing_who_asks_is_an_error_with_the_way_out(store, options):
    with pytest.raises(pgqrs.ConfigError) as refused:
        app(store, **options)

    assert "authorize=" in str(refused.value)
    assert "tokens=" in str(refused.value)
    assert "pgqrs token create" in str(refused.value)


async def refuse():
    raise HTTPException(401)


async def test_global_dependencies_of_fastapi_do_not_cover_a_mount(store):
    """What the guide says: `authorize` is asked, and the dependencies of the application around are not."""
    asked = []

    async def nobody(request):
        asked.append(request.url.path)

    around = FastAPI(dependencies=[Depends(refuse)])
    around.mount("/pgqrs", app(store, authorize=nobody, hosts=["shop.example"]))

    @around.get("/own")
    async def own():
        return {}

    transport = httpx2.ASGITransport(around, client=("10.0.0.5", 5555))
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop.example") as client:
        assert (await client.get("/own")).status_code == 401
        # Open to all, although every route of the application itself is not.
        assert (await client.get("/pgqrs/healthz")).status_code == 200
        assert (await client.get("/pgqrs/api/v1/runs")).status_code == 401
    assert asked[-1] == "/pgqrs/api/v1/runs"


async def test_no_header_replaces_what_the_application_knows(store):
    """The finding: the Host header, and a header that the client sends, were taken for who asks."""
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger({"secret": "s3cret"}).execute(store)

    async def by_scope(request):
        user = request.scope.get("user")
        return None if user is None else Caller(user, frozenset(Scope))

    around = Starlette(routes=[Mount("/pgqrs", app=app(store, authorize=by_scope, hosts=["shop.example"]))])
    for peer in ("127.0.0.1", "10.0.0.5"):
        transport = httpx2.ASGITransport(around, client=(peer, 5555))
        async with httpx2.AsyncClient(transport=transport, base_url="http://shop.example") as client:
            for endpoint in endpoints():
                if endpoint.scope is not None:
                    for headers in (
                        {"host": "localhost"},
                        {"x-user": "ann", "remote-user": "ann", "x-forwarded-user": "ann"},
                        {"authorization": "Bearer guess", "x-pgqrs-request": "1"},
                        {"cookie": "pgqrs_session=guess; pgqrs_session_80=guess; user=ann"},
                    ):
                        path = "/pgqrs" + filled(endpoint)
                        answered = await client.request(endpoint.method, path, headers=headers)

                        assert answered.status_code in (401, 303), (endpoint, headers)
                        assert "s3cret" not in answered.text


async def test_forms_are_taken_by_every_process_of_the_application(store):
    """The finding: the secret of forms belonged to one process, and its neighbour refused them."""
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger(None).execute(store)

    async def ann(_request):
        return Caller("ann", frozenset(Scope))

    async def bob(_request):
        return Caller("bob", frozenset(Scope))

    from rig.asgi import Browser

    one, other = (Browser(app(store, authorize=ann)) for _ in range(2))
    shown = await one.get("/runs/1/confirm/pause")
    other.cookies = one.cookies
    [form] = [each for each in shown.document.forms if each.action.endswith("/pause")]

    paused = await other.post(form.action, form.fields)
    assert (paused.status, (await pgqrs.workflow("flow").get_run(1, store)).status) == (303, "PAUSED")
    # Another user's browser, a field without its cookie, and a cookie that was planted without its field.
    stranger = Browser(app(store, authorize=bob))
    stranger.cookies = dict(one.cookies)
    assert (await stranger.post("/runs/1/resume", form.fields)).status == 403
    assert (await Browser(app(store, authorize=ann)).post("/runs/1/resume", form.fields)).status == 403
    assert (await one.post("/runs/1/resume", {"form_token": next(iter(one.cookies.values()))})).status == 403


async def test_scopes_of_the_application_include_what_those_of_tokens_do(store):
    """A verb answers with the run as it is then: a caller that may act, but not read, was shown it all the same."""

    async def operator(request):
        return Caller("op", frozenset({Scope.OPERATE}))

    async with http.client(store, authorize=operator) as client:
        assert (await client.get("/runs")).status_code == 200
        assert (await client.post("/api/v1/queues/nowhere/purge")).status_code == 403
