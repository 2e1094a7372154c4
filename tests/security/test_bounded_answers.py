"""However large rows are, an answer is not: lists cut texts and say so, and documents are streamed."""

import asyncio
import json
import random

import pytest

import pgqrs
from pgqrs.api.arguments import MOST_TEXT
from pgqrs.api.operations import export
from pgqrs.web import pagination
from pgqrs.web.pages import run as run_page
from rig import http
from rig.html import parsed

API = http.API
LARGE = 300_000
flow = pgqrs.workflow("flow")


@pytest.fixture
async def api(store):
    async with http.client(store) as client:
        yield client


@pytest.fixture
def small_pages(monkeypatch):
    """As if rows could be larger: what a page holds is 20,000 characters."""
    monkeypatch.setattr(pagination, "PAGE_CHARACTERS", 20_000)


async def _ran(store, handler, params=None, **options):
    await store.create_workflow("flow")
    run_id = await flow.trigger(params, **options).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    return run_id


async def _all(api, path, **query):
    """Every item, page by page."""
    found, cursor = [], None
    while True:
        page = (await api.get(path, params={**query, **({"cursor": cursor} if cursor else {})})).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def test_steps_come_in_pages_and_their_values_are_cut(store, api, small_pages):
    async def handler(ctx, params):
        for number in range(7):
            await ctx.step(f"step {number}", lambda: "x" * 15_000)

    run_id = await _ran(store, handler)
    path = f"{API}/runs/{run_id}/steps"
    page = await api.get(path, params={"limit": 3})
    items = page.json()["items"]
    paged = await _all(api, path, limit=3)
    whole = await _all(api, path, limit=1)

    assert len(page.content) < 30_000
    assert [each["step_id"] for each in items] == ["step 0", "step 1", "step 2"]
    assert all(each["truncated"] == ["output"] for each in items)
    assert all(len(each["output"]) == 20_000 // 9 for each in items)
    assert [each["step_id"] for each in paged] == [f"step {n}" for n in range(7)]
    # A third of what a page holds is for each of the three values of a step.
    assert {len(each["output"]) for each in whole} == {6_666}
    assert (await api.get(path, params={"limit": 1, "cursor": "forged"})).status_code == 422
    assert (await api.get(f"{API}/runs/999/steps")).status_code == 404


async def test_a_value_of_the_largest_size_is_whole_on_a_page_of_one(store, api):
    value = "x" * (store.config.max_payload_bytes - 2)

    async def handler(ctx, params):
        return await ctx.step("large", lambda: value)

    run_id = await _ran(store, handler)
    [step] = (await api.get(f"{API}/runs/{run_id}/steps", params={"limit": 1})).json()["items"]

    assert "truncated" not in step
    assert step["output"] == value
    assert (await api.get(f"{API}/runs/{run_id}/result")).json() == value


async def test_messages_are_cut_where_many_are_shown(store, api, small_pages, clock):
    await store.create_queue("mail")
    producer = await store.producer("mail")
    await producer.enqueue_many([{"n": n, "text": "é" * 15_000} for n in range(5)], max_attempts=1)
    many = await api.get(f"{API}/queues/mail/messages", params={"limit": 5})
    one = (await api.get(f"{API}/queues/mail/messages", params={"limit": 1})).json()

    assert len(many.content) < 45_000
    assert all(each["truncated"] == ["payload"] for each in many.json()["items"])
    assert many.json()["items"][0]["payload"].startswith('{"n":0,"text":"é')
    assert one["items"][0]["payload"] == {"n": 0, "text": "é" * 15_000}
    assert len(await _all(api, f"{API}/queues/mail/messages", limit=2)) == 5
    consumer = await store.consumer("mail")
    await consumer.dequeue(batch_size=5, lease_seconds=30)
    clock.advance(31)
    dead = (await api.get(f"{API}/queues/mail/dead", params={"limit": 5})).json()["items"]
    assert [each["truncated"] for each in dead] == [["payload"]] * 5
    assert await pgqrs.admin(store).replay("mail") == 5


async def test_runs_and_their_events_are_cut_where_many_are_shown(store, api, small_pages):
    await store.create_workflow("flow")
    for _ in range(3):
        run_id = await flow.trigger(None, attributes={"large": "x" * 15_000}).execute(store)
        await flow.cancel(run_id, store, reason="y" * MOST_TEXT)
    listed = await api.get(f"{API}/runs", params={"limit": 100})
    events = (await api.get(f"{API}/runs/{run_id}/events", params={"limit": 100})).json()["items"]

    assert len(listed.content) < 20_000
    assert [each["truncated"] for each in listed.json()["items"]] == [["last_error", "attributes"]] * 3
    assert [each.get("truncated") for each in events] == [None, ["data"]]
    assert events[1]["data"].startswith('{"reason":"y')
    # Python programs are given the whole.
    assert {len(each.last_error) for each in await pgqrs.admin(store).runs()} == {MOST_TEXT}


async def test_schedules_come_in_pages(store, api, small_pages):
    await store.create_workflow("flow")
    for number in range(5):
        await pgqrs.schedules(store).create(f"s{number}", "flow", cron="0 3 * * *", params="x" * 15_000)

    listed = await _all(api, f"{API}/schedules", limit=2)
    assert [each["name"] for each in listed] == [f"s{n}" for n in range(5)]
    assert all(each["truncated"] == ["params"] for each in listed)
    assert (await api.get(f"{API}/schedules/s0")).json()["params"] == "x" * 15_000
    assert len(await pgqrs.schedules(store).list()) == 5


@pytest.mark.parametrize("verb", ["cancel", "pause", "delete"])
async def test_a_reason_has_its_limit(store, api, verb):
    await store.create_workflow("flow")
    run_id = await flow.trigger(None).execute(store)
    answer = await api.post(f"{API}/runs/{run_id}/{verb}", json={"reason": "x" * (MOST_TEXT + 1)})
    assert answer.status_code == 422
    with pytest.raises(pgqrs.ConfigError, match="reason has 2,001 characters; use at most 2,000"):
        await getattr(flow, verb)(run_id, store, reason="x" * (MOST_TEXT + 1))

    assert (await api.post(f"{API}/runs/{run_id}/{verb}", json={"reason": "x" * MOST_TEXT})).status_code == 200


async def test_many_ids_at_once_are_refused(store, api):
    await store.create_queue("mail")
    for path in ("queues/mail/replay", "outbox/replay"):
        answer = await api.post(f"{API}/{path}", json={"ids": list(range(1_001))})
        assert answer.status_code == 422
        assert (await api.post(f"{API}/{path}", json={"ids": list(range(1_000))})).json() == {"count": 0}


async def test_an_export_is_the_same_however_it_is_cut_into_pieces(store, api, monkeypatch):
    sizes = random.Random(7)

    async def handler(ctx, params):
        for number in range(25):
            size = sizes.choice([0, 1, 50, 400, 1_500])
            await ctx.step(f"é {number}", lambda size=size: ["x" * size, {"n": size}])
        return await ctx.wait_for("go")

    await store.create_workflow("flow")
    run_id = await flow.trigger({"a": [1, 2.5, None]}).execute(store)
    for number in range(5):
        await flow.signal(run_id, store, "go", {"n": number})
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    whole = await export.export_run(store, run_id)
    assert [each["step_id"] for each in whole["steps"]][:2] == ["é 0", "é 1"]
    assert len(whole["signals"]) == 5
    for characters, rows in (1, 1), (700, 3), (2_000, 7), (10**9, 1_000):
        monkeypatch.setattr(export, "MOST_CHARACTERS", characters)
        monkeypatch.setattr(export, "MOST_ROWS", rows)
        assert await export.export_run(store, run_id) == whole
        assert (await api.get(f"{API}/runs/{run_id}/export")).json() == whole

    assert (await api.get(f"{API}/runs/999/export")).status_code == 404


async def test_a_download_is_read_in_pieces(store, api, monkeypatch):
    monkeypatch.setattr(run_page, "PIECE", 1_000)
    value = "".join(chr(random.Random(3).choice([97, 233, 0x1F422])) for _ in range(5_500))

    async def handler(ctx, params):
        return await ctx.step("large", lambda: value)

    run_id = await _ran(store, handler)
    answer = await api.get(f"/runs/{run_id}/download", params={"what": "output", "step": "large"})

    assert json.loads(answer.content) == value
    assert (await api.get(f"/runs/{run_id}/download", params={"what": "output", "step": "none"})).content == b""
    assert (await api.get(f"/runs/{run_id}/download", params={"what": "output"})).json() == value
    assert (await api.get("/runs/999/download", params={"what": "run"})).status_code == 404


@pytest.mark.backends("sqlite")
async def test_one_caller_reads_so_many_documents_at_the_same_time(store, monkeypatch):
    monkeypatch.setattr("pgqrs.web.application.MOST_DOCUMENTS", 1)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(store, run_id):
        yield b"{"
        begun.set()
        await go_on.wait()
        yield b"}"

    await store.create_workflow("flow")
    run_id = await flow.trigger(None).execute(store)
    async with http.client(store) as client:
        path = f"{API}/runs/{run_id}/export"
        with monkeypatch.context() as patched:
            patched.setattr("pgqrs.web.api.runs.export_pieces", slowly)
            first = asyncio.create_task(client.get(path))
            await begun.wait()
            assert (await client.get(path)).status_code == 429
            go_on.set()
            assert (await first).status_code == 200
        assert (await client.get(path)).status_code == 200


async def test_a_page_shows_so_many_attributes(store, api):
    await store.create_workflow("flow")
    run_id = await flow.trigger(None, attributes={f"a{n}": "x" * 20 for n in range(60_000)}).execute(store)
    answer = await api.get(f"/runs/{run_id}")

    assert len(answer.content) < 200_000
    assert "59 900 more" in parsed(answer.text).text.replace("\N{NARROW NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    "forged",
    [
        "x",
        "[]",
        "AAAA",
        '["2030-01-01T00:00:00+00:00", 99999999999999999999, "a"]',
        "\ud800".encode(errors="replace"),
    ],
)
async def test_a_forged_place_among_steps_is_refused(store, api, forged):
    await store.create_workflow("flow")
    run_id = await flow.trigger(None).execute(store)

    assert (await api.get(f"/runs/{run_id}", params={"steps_after": forged})).status_code == 422


async def test_a_cursor_with_places_that_no_database_has_is_refused(store, api):
    from pgqrs.api.cursors import to_cursor

    await store.create_workflow("flow")
    run_id = await flow.trigger(None).execute(store)
    hostile = [("a\0b", 0, 0), ("a", 2**62, 0), ("a", -(2**62), 0), ("a", 0, 2**40), ("a", 0, -(2**40))]
    for name, moment, ordinal in hostile:
        forged = to_cursor(moment, ordinal, name=name)
        assert (await api.get(f"/runs/{run_id}", params={"steps_after": forged})).status_code == 422
        assert (await api.get(f"{API}/runs/{run_id}/steps", params={"cursor": forged})).status_code == 422
