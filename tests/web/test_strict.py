"""What a request says is taken word for word, or refused."""

import json

import pytest

import pgqrs
from pgqrs.web.auth.start_token import StartToken
from rig import http

RUNS = "/api/v1/runs"
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
async def _flow(store):
    await store.create_workflow("flow")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("text", "status", "hint"),
    [
        (b"", 422, "workflow"),
        (b"[]", 422, "object"),
        (b"null", 422, "object"),
        (b"{", 400, "Expecting"),
        (b'{"workflow": "flow", "workflow": "other"}', 400, "'workflow' is there twice"),
        (b'{"workflow": "flow", "params": {"a": 1, "b": {"c": 1, "c": 2}}}', 400, "'c' is there twice"),
        (b'{"workflow": "flow", "params": NaN}', 400, "NaN is no JSON"),
        (b'{"workflow": "flow", "params": -Infinity}', 400, "-Infinity is no JSON"),
        (b'{"workflow": "flow", "params": 1e999}', 400, "larger than a number"),
        (b'{"workflow": "flow", "params": ' + b"9" * 5000 + b"}", 400, "no JSON that we take"),
        (b'{"workflow": "flow", "params": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "deep"),
        (b'{"workflow": "flow", "params": ' + b"[" * 200 + b"]" * 200 + b"}", 422, "nested deeper"),
        (b'{"workflow": "flow", "params": "\\ud800"}', 422, ""),
        (b'{"workflow": "fl\\u0000ow"}', 422, "not allowed"),
        (b'{"workflow": "flow", "\\ud800": 1}', 422, ""),
        (b'{"workflow": "flow"} x', 400, "Extra data"),
        (b"\xff\xfe{}", 400, "no JSON"),
        (b'\xef\xbb\xbf{"workflow": "flow"}', 400, "BOM"),
        (b'{"workflow": "flow", "unknown": 1}', 422, "unknown"),
        (b'{"workflow": "flow", "priority": 1.5}', 422, "int"),
        (b'{"workflow": "flow", "priority": true}', 422, "int"),
        (b'{"workflow": "flow", "attributes": {"a": "\\u0000"}}', 422, ""),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_json_is_what_the_standard_says_or_refused(store, api, text, status, hint):
    answer = await api.post(RUNS, content=text, headers=JSON)

    assert answer.status_code == status, answer.text[:300]
    assert hint in answer.json()["detail"]
    assert (await pgqrs.admin(store).count_runs()).count == 0


async def test_odd_text_comes_back_as_it_went_in(api):
    params = {"text": "żółw 🐢 \\ \" ' ; -- \u2028 \u202e <script>", "": [1e-300, -0.0, 2**62]}
    made = (await api.post(RUNS, json={"workflow": "flow", "params": params})).json()

    assert (await api.get(f"{RUNS}/{made['run_id']}")).json()["input"] == params


@pytest.mark.backends("sqlite")
async def test_a_duplicate_among_many_keys_is_found_quickly(api):
    keys = ",".join(f'"k{n}":0' for n in range(150_000))
    text = f'{{"workflow": "flow", "params": {{{keys},"k149999":1}}}}'.encode()

    assert (await api.post(RUNS, content=text, headers=JSON)).json()["code"] == "bad-json"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json", ""]
)
async def test_another_type_than_json_is_refused(api, kind):
    answer = await api.post(RUNS, content=b'{"workflow": "flow"}', headers={"content-type": kind})

    # A form without our token may be anybody's, so that is said first.
    assert answer.status_code == 415


@pytest.mark.backends("sqlite")
async def test_json_with_a_charset_is_json(api):
    answer = await api.post(
        RUNS, content=b'{"workflow": "flow"}', headers={"content-type": "Application/JSON; charset=utf-8"}
    )

    assert answer.status_code == 201


@pytest.mark.backends("sqlite")
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(store, api):
    most = store.config.max_payload_bytes

    async def pieces():
        for _ in range(40):
            yield b" " * (most // 10)

    told = await api.post(RUNS, content=b"x" * (most + 70_000), headers=JSON)
    untold = await api.post(RUNS, content=pieces(), headers=JSON)
    fits = await api.post(RUNS, json={"workflow": "flow", "params": "x" * (most - 2)})
    over = await api.post(RUNS, json={"workflow": "flow", "params": "x" * (most - 1)})

    assert (told.status_code, untold.status_code, fits.status_code, over.status_code) == (413, 413, 201, 413)
    assert (told.json()["code"], over.json()["code"]) == ("too-large", "payload-too-large")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("path", ["/stats", "/queues", "/workflows/flow", "/runs/1/steps", "/schedules"])
async def test_a_parameter_that_is_not_known_is_refused(store, api, path):
    await pgqrs.workflow("flow").trigger(None).execute(store)

    assert (await api.get(f"/api/v1{path}?verbose=1")).status_code == 422


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/workflows/%00",
        "/api/v1/workflows/a%2Fb",
        "/api/v1/workflows/%F0%9F%90%A2",
        "/api/v1/workflows/%ff%fe",
        "/api/v1/queues/..%2f..%2fetc",
        "/api/v1/queues/';drop table pgqrs_queues;--",
        "/api/v1/schedules/" + "x" * 300,
        "/api/v1/runs/1%0d%0aX-Evil:1",
        "/static/../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/access.py",
    ],
)
async def test_odd_paths_are_not_found_or_refused(store, api, path):
    answer = await api.get(path)

    assert answer.status_code in (404, 422), answer.text
    assert "x-evil" not in answer.headers


@pytest.mark.backends("sqlite")
async def test_a_reason_that_no_database_stores_is_refused(store, api):
    made = (await api.post(RUNS, json={"workflow": "flow"})).json()

    for reason in ("a\u0000b", "\ud800"):
        body = json.dumps({"reason": reason}).encode()
        answer = await api.post(f"{RUNS}/{made['run_id']}/cancel", content=body, headers=JSON)
        assert answer.status_code == 422
    for name in ("%00", "a%20b" * 200):
        assert (await api.post(f"{RUNS}/{made['run_id']}/signals/{name}")).status_code in (200, 422)


@pytest.mark.backends("sqlite")
async def test_a_host_that_is_not_ours_is_told_nothing(store, token_file, tokens):
    async with http.client(store, tokens=token_file, hosts=["jobs.example"], headers={}) as api:
        for host in (
            "evil.example",
            "localhost.evil.example",
            "jobs.example.evil",
            "127.0.0.1.nip.io",
            "",
            "localhost.",
            "[::2]",
        ):
            answer = await api.get("/healthz", headers={"host": host})
            assert answer.status_code == 421, host
        for host in ("localhost:1", "127.0.0.1:7890", "[::1]:7890", "jobs.example", "JOBS.example:443"):
            assert (await api.get("/healthz", headers={"host": host})).status_code == 200, host


async def test_names_that_others_can_reach_need_tokens_or_authorize(store):
    with pytest.raises(pgqrs.ConfigError, match="can be reached from other machines"):
        http.client(store, tokens=StartToken(), hosts=["jobs.example"])
