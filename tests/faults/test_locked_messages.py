"""PostgreSQL: a message that another transaction has locked keeps nobody from those behind it."""

import asyncio

import asyncpg
import pytest

import pgqrs
from pgqrs import faults

pytestmark = pytest.mark.backends("postgres")


@pytest.fixture
async def lock_first(config):
    """Locks the oldest message in a transaction that stays open until the test is over."""
    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    transaction = connection.transaction()

    async def lock():
        await transaction.start()
        await connection.fetch(
            f'select message_id from "{config.schema}".pgqrs_messages order by message_id limit 1 for update'
        )

    yield lock
    await transaction.rollback()
    await connection.close()


async def test_a_dequeue_passes_over_it(store, lock_first):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many(["locked", "free", "free too"])
    consumer = await store.consumer("tasks")
    await lock_first()

    found = await asyncio.wait_for(consumer.dequeue(10), 20)

    assert [message.payload for message in found] == ["free", "free too"]


async def test_a_worker_passes_over_it(store, lock_first):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    seen = []
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx, name: seen.append(name)).create(store)
    for name in ("locked", "free"):
        await flow.trigger(name).execute(store)
    await lock_first()

    await asyncio.wait_for(worker.run_until_idle(), 20)

    assert seen == ["free"]
    await worker.close()


async def test_a_handler_does_not_spin_while_another_transaction_has_what_is_due(live_store, lock_first):
    """It asked a hundred times a second."""
    await live_store.create_queue("tasks")
    await (await live_store.producer("tasks")).enqueue("locked")
    consumer = await live_store.consumer("tasks")
    await lock_first()

    with faults.recorded() as points:
        handling = asyncio.create_task(consumer.process(print))
        # The server's own clock, and a lock that nobody tells of.
        await asyncio.sleep(2)
        handling.cancel()
        await asyncio.gather(handling, return_exceptions=True)

    looks = [point for point in points if point == ("before", "messages.next_due")]
    assert 1 <= len(looks) <= 12
