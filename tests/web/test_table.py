"""Who may do what: walked over the table of routes, so that a new route is guarded or the test fails."""

import pytest

from pgqrs.web.auth import tokens as kept
from pgqrs.web.auth.access import Caller, Scope, implied
from rig import http
from rig.http import ON_PURPOSE, api_routes, changing, dump, filled, named

CROSS_SITE = [
    # A form of another site, sent by somebody's browser.
    {
        "content-type": "application/x-www-form-urlencoded",
        "origin": "https://evil.example",
        "sec-fetch-site": "cross-site",
    },
    # fetch() with a type that needs no preflight.
    {"content-type": "text/plain", "origin": "https://evil.example"},
    # A page in a sandbox, or a file.
    {"content-type": "text/plain", "origin": "null"},
    {"origin": "null", **ON_PURPOSE},
    # Another service on this machine.
    {"origin": "http://localhost:9999", **ON_PURPOSE},
    {"origin": "https://localhost", **ON_PURPOSE},
    {"sec-fetch-site": "same-site", **ON_PURPOSE},
    {"sec-fetch-site": "cross-site", **ON_PURPOSE},
    {"sec-fetch-site": "none", **ON_PURPOSE},
    # A browser that says nothing: then nothing shows that it was meant.
    {},
    {"content-type": "application/json"},
    # What a browser adds by itself shows nothing.
    {"authorization": "Basic YW5uOnB3"},
]


async def test_nothing_is_changed_where_it_only_shows(store, furnished):
    before = await dump(store)
    async with http.client(store, read_only=True) as client:
        for endpoint in changing():
            answer = await client.request(endpoint.method, filled(endpoint, **furnished), json={})
            assert answer.status_code == 403, named(endpoint)

    assert await dump(store) == before


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("headers", CROSS_SITE, ids=str)
async def test_nothing_is_changed_by_the_page_of_somebody_else(store, furnished, headers):
    before = await dump(store)
    async with http.client(store, headers=headers) as client:
        for endpoint in changing():
            answer = await client.request(endpoint.method, filled(endpoint, **furnished), content=b"form_token=guess")
            assert answer.status_code == 403, named(endpoint)
            assert endpoint.page or answer.json()["code"] == "cross-site"

    assert await dump(store) == before


@pytest.mark.backends("sqlite")
async def test_each_route_needs_its_scope_and_takes_no_other(store, furnished, token_file, tokens):
    wrong = ("Bearer pgqrs_wrong", "Bearer", "Basic YTpi", f"bearer  {tokens[Scope.ADMIN]}x")
    tried = 0
    for endpoint in http.endpoints(dashboard=False):
        if endpoint.scope is None:
            continue
        # Each route with a server of its own: so many wrong tokens are locked out else.
        async with http.client(store, tokens=token_file, headers={}) as client:

            async def status(endpoint=endpoint, client=client, **headers):
                # A field that nobody knows: where the scope is right, nothing happens all the same.
                path = filled(endpoint, **furnished)
                return (await client.request(endpoint.method, path, headers=headers, json={"nobody": 1})).status_code

            assert await status() == 401, named(endpoint)
            assert {await status(authorization=each) for each in wrong} == {401}, named(endpoint)
            able = {scope for scope in Scope if endpoint.scope in implied([scope])}
            for scope in Scope:
                # The stream has no end: only those are tried that are refused.
                if endpoint.path != "/stream" or scope not in able:
                    refused = await status(authorization=f"Bearer {tokens[scope]}") in (401, 403)
                    assert refused is (scope not in able), (named(endpoint), scope)
                    tried += 1

    assert tried > 200


@pytest.mark.backends("sqlite")
async def test_a_token_that_may_only_trigger_reads_nothing(store, furnished, token_file, tokens):
    headers = {"authorization": f"Bearer {tokens[Scope.TRIGGER]}"}
    async with http.client(store, tokens=token_file, headers=headers) as client:
        made = await client.post(
            "/api/v1/runs", json={"workflow": "flow", "params": {"secret": "s3cret"}, "idempotency_key": "k"}
        )
        again = await client.post(
            "/api/v1/runs", json={"workflow": "flow", "params": {"secret": "s3cret"}, "idempotency_key": "k"}
        )
        signalled = await client.post(f"/api/v1/runs/{made.json()['run_id']}/signals/go")

    assert (made.status_code, again.status_code, signalled.status_code) == (201, 200, 403)
    assert "s3cret" not in made.text + again.text + signalled.text
    assert set(made.json()) == {"run_id", "workflow", "idempotency_key", "created_at", "warnings"}


async def test_looking_changes_nothing(store, furnished):
    before = await dump(store)
    async with http.client(store) as client:
        for endpoint in api_routes():
            if not endpoint.changes:
                for method in ("GET", "GET", "HEAD"):
                    answer = await client.request(method, filled(endpoint, **furnished))
                    assert answer.status_code in (200, 202, 404), (named(endpoint), answer.text)

    assert await dump(store) == before


@pytest.mark.backends("sqlite")
async def test_a_path_says_which_methods_it_takes(store, furnished):
    methods: dict[str, set[str]] = {}
    for endpoint in http.endpoints(dashboard=False):
        methods.setdefault(filled(endpoint, **furnished), set()).add(endpoint.method)
    async with http.client(store) as client:
        for path, known in methods.items():
            for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} - known:
                answer = await client.request(method, path)
                assert answer.status_code == 405, (method, path)
                expected = known | ({"HEAD"} if "GET" in known else set())
                assert set(answer.headers["allow"].replace(" ", "").split(",")) == expected
                assert answer.json()["code"] == "method-not-allowed"


@pytest.mark.backends("sqlite")
async def test_a_path_with_a_slash_too_many_is_another_path(store, furnished):
    async with http.client(store) as client:
        for endpoint in http.endpoints(dashboard=False):
            answer = await client.request(endpoint.method, filled(endpoint, **furnished) + "/")
            assert answer.status_code == 404, named(endpoint)


@pytest.mark.backends("sqlite")
async def test_every_answer_carries_the_headers_that_keep_browsers_safe(store, furnished):
    async with http.client(store) as client:
        paths = [filled(each, **furnished) for each in api_routes() if not each.changes]
        for path in [*paths, "/nowhere"]:
            headers = (await client.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["referrer-policy"] in ("no-referrer", "same-origin")
            assert headers["cache-control"] == "no-store"
            assert not [name for name in headers if name.startswith("access-control-")]


@pytest.mark.backends("sqlite")
async def test_whoever_the_application_around_us_lets_in_may_do_what_it_says(store, furnished):
    async def authorize(request):
        name = request.headers.get("x-user")
        return None if name is None else Caller(name, frozenset({Scope.READ} if name == "bob" else Scope))

    async with http.client(store, authorize=authorize, read_only=None) as client:
        path = f"/api/v1/runs/{furnished['run_id']}"
        assert (await client.get(path)).status_code == 401
        assert (await client.get(path, headers={"x-user": "bob"})).status_code == 200
        assert (await client.post(f"{path}/pause", headers={"x-user": "bob"})).status_code == 403
        assert (await client.post(f"{path}/pause", headers={"x-user": "ann"})).status_code == 200
        events = (await client.get(f"{path}/events", headers={"x-user": "ann"})).json()["items"]

    assert events[-1]["actor"] == "ann"


@pytest.mark.backends("sqlite")
async def test_with_tokens_it_may_still_be_told_to_only_show(store, furnished, token_file, tokens):
    headers = {"authorization": f"Bearer {tokens[Scope.ADMIN]}"}
    async with http.client(store, tokens=token_file, read_only=True, headers=headers) as client:
        assert (await client.post(f"/api/v1/runs/{furnished['run_id']}/cancel")).status_code == 403
        assert (await client.get("/api/v1/runs")).status_code == 200


@pytest.mark.backends("sqlite")
async def test_a_revoked_token_is_refused_at_once(store, token_file, tokens):
    headers = {"authorization": f"Bearer {tokens[Scope.READ]}"}
    async with http.client(store, tokens=token_file, headers=headers) as client:
        assert (await client.get("/api/v1/stats")).status_code == 200
        kept.revoke(token_file, "a_read")
        assert (await client.get("/api/v1/stats")).status_code == 401
