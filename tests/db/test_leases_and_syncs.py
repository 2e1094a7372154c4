"""On a file a lease leaves its sync to the next commit: a power cut would take its holder along."""

import asyncio

import pytest

import pgqrs
from pgqrs.db.drivers.sqlite.file import SQLiteFile

pytestmark = pytest.mark.backends("sqlite")
flow = pgqrs.workflow("flow")


@pytest.fixture
def told(monkeypatch):
    """What every connection to the file is told from now on."""
    statements = []
    connect = SQLiteFile.connect

    def traced(file):
        connection = connect(file)
        connection.set_trace_callback(lambda text: statements.append(" ".join(text.split())))
        return connection

    monkeypatch.setattr(SQLiteFile, "connect", traced)
    return statements


def syncs(statements):
    """For each commit, whether it was synced."""
    found, full = [], True
    for text in statements:
        if text.startswith("pragma synchronous = "):
            full = text.endswith("full")
        elif text == "commit":
            found.append(full)
    assert full
    return found


async def test_a_lease_is_not_synced_and_all_else_is(told, connect):
    store = await connect()
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    told.clear()

    await producer.enqueue_many([1, 2])
    assert syncs(told) == [True]
    told.clear()
    [message] = await consumer.dequeue(1)
    assert syncs(told) == [False]
    told.clear()
    await message.archive()
    assert syncs(told) == [True]


async def test_a_claim_is_not_synced_and_what_comes_of_it_is(told, connect):
    store = await connect()
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx, n: n).create(store)
    run_id = await flow.trigger(7).execute(store)
    told.clear()

    await worker.run_until_idle()
    seen = syncs(told)
    await worker.close()

    # It is claimed, it ends, and a claim finds no other.
    assert seen == [False, True, False]
    assert (await flow.get_run(run_id, store)).output() == 7


async def test_a_lease_beside_something_else_is_synced_with_it(told, connect):
    """Whoever waits behind it must not be told that something is durable which is not."""
    store = await connect()
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await producer.enqueue_many(range(100))
    told.clear()

    async def enqueue():
        for n in range(50):
            await producer.enqueue(n)

    await asyncio.gather(enqueue(), *(consumer.dequeue(1) for _ in range(50)))

    full, writes = True, 0
    for text in told:
        if text.startswith("pragma synchronous = "):
            full = text.endswith("full")
        elif text.lower().startswith("insert into pgqrs_messages"):
            writes += 1
            assert full, "a message that is acknowledged without a sync"
    assert writes
