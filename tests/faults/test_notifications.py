"""A notification is a reason to look and nothing more: it may fail, and come from anyone."""

import asyncio

import asyncpg
import pytest

import pgqrs
from pgqrs.db.drivers.postgres import listen
from pgqrs.db.queries import Query

pytestmark = pytest.mark.backends("postgres")


@pytest.mark.row("B4.23")
async def test_a_hint_that_cannot_be_sent_does_not_fail_the_enqueue(live_store, monkeypatch):
    """As when the queue of notifications is full: the hint is sent outside of the transaction."""
    failing = Query("notify", "select 1 / 0, cast(:channel as text), cast(:payload as text)")
    monkeypatch.setattr(listen, "_NOTIFY", failing)
    await live_store.create_queue("tasks")
    consumer = await live_store.consumer("tasks")
    waiting = asyncio.create_task(consumer.dequeue(wait_seconds=30))
    other = await pgqrs.connect_with(live_store.config)
    await (await other.producer("tasks")).enqueue("x")

    assert [message.payload for message in await waiting] == ["x"]
    await other.close()


@pytest.mark.row("B4.24")
@pytest.mark.parametrize(
    "payload", ["", "*", "'; drop table pgqrs_messages; --", "1," * 3000, "9" * 7000, "\U0001f600"]
)
async def test_a_notification_of_anybody_is_a_reason_to_look_and_nothing_more(live_store, config, payload):
    await live_store.create_queue("tasks")
    consumer = await live_store.consumer("tasks")
    heard = asyncio.Event()
    live_store.database.hints.watchers.append(lambda _: heard.set())
    waiting = asyncio.create_task(consumer.dequeue(wait_seconds=30))
    stranger = await asyncpg.connect(config.dsn)
    await heard.wait()  # It listens.
    heard.clear()
    for _ in range(3):
        await stranger.execute("select pg_notify($1, $2)", f"pgqrs_{config.schema}", payload)
    await stranger.close()
    await asyncio.wait_for(heard.wait(), 20)
    other = await pgqrs.connect_with(config)
    await (await other.producer("tasks")).enqueue("x")

    assert [message.payload for message in await waiting] == ["x"]
    await other.close()
