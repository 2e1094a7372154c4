"""Lists of queues, workflows and workers come in pages: however many rows there are, an answer has a size."""

import pytest

import pgqrs
from pgqrs.db.queries import Query
from pgqrs.db.tables import workers
from rig import http

API = http.API
MANY = 10_000
# With a number of six digits: as long as names may be.
LONG = "n" * 249
# An item is its name and some numbers.
MOST_BYTES = 1_000 * 600


@pytest.fixture
async def api(store):
    async with http.client(store) as client:
        yield client


async def _copied(store, table, columns, values, many):
    numbers = f"with recursive n (x) as (select 1 union all select x + 1 from n where x < {many})"
    text = f"{numbers} insert into {table} ({columns}) select {values} from n cross join {table} as first"
    if store.config.backend == "postgres":
        text = f"insert into {table} ({columns}) {numbers} select {values} from n cross join {table} as first"
    await store.database.execute(Query(f"copy_{table}", text))


@pytest.fixture
async def many_workflows(store):
    """So many, each with its queue, with the longest names."""
    await store.create_workflow("first")
    name = f"'{LONG}' || cast(100000 + n.x as text)"
    await _copied(store, "pgqrs_queues", "name, created_at", f"{name}, first.created_at", MANY)
    columns = "name, queue_id, created_at"
    text = f"insert into pgqrs_workflows ({columns}) select {columns} from pgqrs_queues where name <> 'first'"
    await store.database.execute(Query("workflows_of_queues", text))


async def _all(api, path):
    found, cursor, largest = [], None, 0
    while True:
        answer = await api.get(path, params={} if cursor is None else {"cursor": cursor})
        assert answer.status_code == 200, answer.text
        largest = max(largest, len(answer.content))
        found += answer.json()["items"]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found, largest


@pytest.mark.parametrize(("noun", "key"), [("queues", "queue"), ("workflows", "workflow")])
async def test_lists_of_names_come_in_pages(store, api, many_workflows, noun, key):
    path = f"{API}/{noun}"
    found, largest = await _all(api, path)

    assert len({each[key] for each in found}) == len(found) == MANY + 1
    assert [each[key] for each in found] == sorted(each[key] for each in found)
    assert largest < MOST_BYTES
    assert [each[key] for each in (await api.get(path, params={"limit": 2})).json()["items"]] == [
        each[key] for each in found[:2]
    ]
    for wrong in {"limit": 1_001}, {"limit": 0}, {"cursor": "forged"}:
        assert (await api.get(path, params=wrong)).status_code == 422


async def test_the_store_at_a_glance_has_a_size(store, api, many_workflows):
    answer = await api.get(f"{API}/stats")

    assert len(answer.content) < 2 * MOST_BYTES
    assert len(answer.json()["queues"]) == len(answer.json()["live"]) == 1_000


@pytest.mark.parametrize("noun", ["queues", "workflows"])
async def test_pages_of_names_have_a_size(store, api, many_workflows, noun):
    first = await api.get(f"/{noun}")
    behind = await api.get(f"/{noun}", params={"after": f"{LONG}{100_000 + MANY - 1}"})

    assert len(first.content) < 200_000
    assert f"{LONG}{100_000 + MANY}" in behind.text
    assert f"{LONG}{100_000 + MANY - 1}<" not in behind.text


async def test_workers_come_in_pages_and_what_they_say_of_themselves_is_left_out_if_it_is_long(store, api):
    names = [f"{LONG}{100_000 + n}" for n in range(40)]
    db = await store.ready()
    short = await workers.register(db, queue_id=None, name="short", port=0, info={"handlers": ["flow"]})
    long = await workers.register(db, queue_id=None, name="long", port=0, info={"handlers": names})
    columns = "hostname, port, status, created_at, heartbeat_at, info"
    await _copied(store, "pgqrs_workers", columns, ", ".join(f"first.{each}" for each in columns.split(", ")), 600)
    found, largest = await _all(api, f"{API}/workers")
    by_id = {each["worker_id"]: each for each in found}

    assert len(by_id) == len(found) == 1_202
    assert largest < MOST_BYTES
    assert (by_id[short]["info"], by_id[short].get("truncated")) == ({"handlers": ["flow"]}, None)
    assert (by_id[long]["info"], by_id[long]["truncated"]) == ({}, ["info"])
    some = (await api.get(f"{API}/workers", params={"limit": 2})).json()["items"]
    assert [each["info"] for each in some] == [{"handlers": ["flow"]}, {"handlers": names}]
    assert (await api.get(f"{API}/workers/{long}")).json()["info"] == {"handlers": names}
    assert len((await api.get("/workers")).content) < 400_000
    assert len(await pgqrs.admin(store).workers()) == 1_202
    assert (await api.get(f"{API}/workers", params={"cursor": "forged"})).status_code == 422


async def test_workers_of_one_queue_are_a_list_too(store, api):
    await store.create_queue("tasks")
    assert (await api.get(f"{API}/workers", params={"queue": "tasks"})).json() == {"items": [], "next_cursor": None}
    assert (await api.get(f"{API}/workers", params={"queue": "nowhere"})).status_code == 404


# Longer than a cursor, and than all headers of a request; PostgreSQL's index holds it, as it is easily compressed.
ENDLESS = "m" * 20_000


async def _by_one(api, path, key):
    """What a client finds that turns pages of one item each, as far as it comes in ten."""
    found, cursor = [], None
    for _ in range(10):
        answer = await api.get(path, params={"limit": 1} if cursor is None else {"limit": 1, "cursor": cursor})
        assert answer.status_code == 200, answer.text
        found += [each[key] for each in answer.json()["items"]]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            break
    return found


@pytest.mark.parametrize(
    ("noun", "key"), [("queues", "queue"), ("workflows", "workflow"), ("schedules", "name"), ("steps", "step_id")]
)
async def test_a_name_of_any_length_hides_no_others(store, api, noun, key):
    """The finding: behind a name that did not fit into a cursor, no page could be asked for."""

    async def handler(ctx, params):
        for name in ("a", "m", "z"):
            await ctx.step(name, lambda: None)

    for name in ("a", "m", "z"):
        await store.create_workflow(name)
        await pgqrs.schedules(store).create(name, "a", cron="30 2 * * *")
    run_id = await pgqrs.workflow("a").trigger(None).execute(store)
    worker = await pgqrs.consumer("w", 0, "a").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    table, column = ("pgqrs_workflow_steps", "step_id") if noun == "steps" else (f"pgqrs_{noun}", "name")
    text = f"update {table} set {column} = '{ENDLESS}' where {column} = 'm'"
    await store.database.execute(Query("longer", text))
    path = f"{API}/runs/{run_id}/steps" if noun == "steps" else f"{API}/{noun}"

    assert sorted(await _by_one(api, path, key)) == ["a", ENDLESS, "z"]


@pytest.mark.parametrize(("noun", "key"), [("queues", "queue"), ("workflows", "workflow")])
async def test_names_of_any_length_make_no_answer_large(store, api, noun, key):
    await store.create_workflow("m")
    await store.database.execute(Query("longer", f"update pgqrs_{noun} set name = '{ENDLESS}' where name = 'm'"))

    [item] = (await api.get(f"{API}/{noun}")).json()["items"]
    assert (len(item[key]) < len(ENDLESS), item["truncated"]) == (True, [key])
