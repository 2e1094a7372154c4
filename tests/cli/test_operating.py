"""Exporting runs, looking into queues, asking and stopping workers, emptying the outbox."""

import asyncio
import json

import pytest

import pgqrs

flow = pgqrs.workflow("flow")


async def _nothing(ctx):
    return await ctx.step("one", lambda: 1)


async def execute(store, handler=_nothing):
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()


async def test_one_run_is_exported_as_a_document_and_many_as_lines(store, command):
    await store.create_workflow("flow")
    ids = await flow.trigger_many([1, 2, 3]).execute(store)
    await execute(store, lambda ctx, n: n)

    one = await command("run", "export", ids[0])
    several = await command("run", "export", "-", given="\n".join(map(str, ids)))
    found = await command("run", "export", "--status", "success")

    assert (one.json["run_id"], one.json["input"], one.json["status"]) == (ids[0], 1, "SUCCESS")
    assert [json.loads(line)["run_id"] for line in several.out.splitlines()] == ids
    assert {json.loads(line)["run_id"] for line in found.out.splitlines()} == set(ids)
    assert (await command("run", "export")).code == 2
    assert (await command("run", "export", ids[0], "--status", "success")).code == 2
    assert (await command("run", "export", 999)).code == 4


async def test_a_queue_is_looked_into_and_nothing_is_taken(store, command):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    for n in range(3):
        await producer.enqueue({"n": n}, priority=n)

    first = await command("queue", "peek", "tasks", "-n", 2, "-o", "json")
    rest = await command("queue", "peek", "tasks", "-o", "json", "--cursor", first.json["next_cursor"])

    assert [each["payload"] for each in first.json["items"]] == [{"n": 2}, {"n": 1}]
    assert [each["payload"] for each in rest.json["items"]] == [{"n": 0}]
    assert rest.json["next_cursor"] is None
    assert (await pgqrs.admin(store).queue_metrics("tasks")).leased == 0
    assert (await command("queue", "peek", "nowhere")).code == 4
    assert (await command("queue", "peek", "tasks", "--cursor", "nonsense")).code == 2


async def test_a_worker_is_shown_and_told_to_stop(store, command):
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w1", 0, "flow").handler(_nothing).create(store)
    task = asyncio.create_task(worker.poll_forever())

    shown = await command("worker", "get", worker.worker_id, "-o", "json")
    told = await command("worker", "stop", worker.worker_id)

    assert (shown.json["name"], shown.json["status"]) == ("w1", "READY")
    assert f"worker {worker.worker_id} is told to stop" in told.out
    await asyncio.wait_for(task, 60)
    assert (await command("worker", "get", 999)).code == 4
    assert (await command("worker", "stop", 999)).code == 4


async def test_the_outbox_is_published_by_what_a_file_names(live_store, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "receivers.py").write_text(
        "import pathlib\n\n"
        "def orders(event):\n"
        "    with pathlib.Path('sent').open('a') as file:\n"
        "        print(event.type, event.payload['n'], file=file)\n\n"
        "def all_of_it(event):\n"
        "    pass\n\n"
        "routes = {'order.*': orders, '*': all_of_it}\n"
    )

    async def handler(ctx, n):
        await ctx.emit("order.shipped", {"n": n})
        await ctx.emit("invoice.sent", {"n": n})

    await live_store.create_workflow("flow")
    await flow.trigger_many([1, 2]).execute(live_store)
    await execute(live_store, handler)

    said = await command("outbox", "dispatch", "receivers.py:routes", "--once")

    assert (said.code, "0 event(s) wait" in said.err) == (0, True)
    assert sorted((tmp_path / "sent").read_text().splitlines()) == ["order.shipped 1", "order.shipped 2"]


async def emit_two(store):
    """Two runs, each with one event in the outbox."""

    async def handler(ctx, n):
        await ctx.emit("order.shipped", {"n": n})

    await store.create_workflow("flow")
    await flow.trigger_many([1, 2]).execute(store)
    await execute(store, handler)


SENDS = """
import pathlib
import pgqrs

def send(event):
    with pathlib.Path('sent').open('a') as file:
        print(event.type, event.payload['n'], file=file)

"""


@pytest.mark.parametrize(
    "where", ["shop.py:dispatcher", "shop.py", "shop.py:routes", "shop.py:typed", "shop.py:made"]
)
async def test_a_function_of_the_store_gives_the_dispatcher_as_in_dev(
    live_store, command, tmp_path, monkeypatch, where
):
    """Each event was counted as published, and none was sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(
        SENDS + "def dispatcher(store):\n    return pgqrs.dispatcher(store).to(send, types=['order.*'])\n\n"
        "def routes(store):\n    return dispatcher(store)\n\n"
        "def typed(on: pgqrs.Store):\n    return dispatcher(on)\n\n"
        "def made(on) -> pgqrs.Dispatcher:\n    return dispatcher(on)\n"
    )
    await emit_two(live_store)

    said = await command("outbox", "dispatch", where, "--once")

    assert (said.code, "0 event(s) wait" in said.err) == (0, True)
    assert sorted((tmp_path / "sent").read_text().splitlines()) == ["order.shipped 1", "order.shipped 2"]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("name", ["send", "dispatcher", "publisher", "publisher.publish"])
async def test_a_publisher_is_sent_the_events_whatever_its_name(live_store, command, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(
        SENDS + "def dispatcher(event):\n    send(event)\n\n"
        "class Publisher:\n    async def publish(self, event):\n        send(event)\n\npublisher = Publisher()\n"
    )
    await emit_two(live_store)

    said = await command("outbox", "dispatch", f"shop.py:{name}", "--once")

    assert said.code == 0
    assert sorted((tmp_path / "sent").read_text().splitlines()) == ["order.shipped 1", "order.shipped 2"]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("odd.py:dispatcher",), "must return a dispatcher"),
        (("odd.py:Publisher",), "names the class Publisher"),
        (("odd.py:three",), "does not take one event"),
        (("odd.py:number",), "does not take one event"),
        (("odd.py:routes",), "does not take one event"),
        (("odd.py:fine", "--type", "order.*"), "leave --type out"),
        (("empty.py",), "has no function `dispatcher(store)`"),
    ],
)
async def test_what_neither_makes_a_dispatcher_nor_publishes_is_refused_and_no_event_is_lost(
    live_store, command, tmp_path, monkeypatch, words, told
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("from pgqrs import dispatcher\n")
    (tmp_path / "odd.py").write_text(
        SENDS + "def dispatcher(store):\n    return None\n\n"
        "def fine(store):\n    return pgqrs.dispatcher(store).to(send)\n\n"
        "class Publisher:\n    def publish(self, event):\n        pass\n\n"
        "def three(a, b, c):\n    pass\n\nnumber = 3\nroutes = {'*': 3}\n"
    )
    await emit_two(live_store)

    said = await command("outbox", "dispatch", *words, "--once")

    assert (said.code, told in said.err) == (2, True), said.err
    assert (await pgqrs.admin(live_store).outbox.counts()).pending == 2


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "words",
    [(), ("receivers.py:routes", "--to", "https://example.com/x"), ("--to", "http://127.0.0.1/x"), ("json:nothing",)],
)
async def test_a_dispatcher_that_cannot_know_where_to_is_refused(command, words):
    assert (await command("outbox", "dispatch", "--once", *words)).code == 2
