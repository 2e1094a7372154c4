"""A store in a forked child, and in a second event loop."""

import asyncio

import pytest

import pgqrs
from rig import forks

# -- forks and threads ----------------------------------------------------------------------------------


@pytest.mark.row("B2.17")
async def test_a_forked_child_is_refused_and_its_parent_goes_on(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")

    async def enqueue():
        with pytest.raises(pgqrs.ConnectionFailed, match="fork"):
            await producer.enqueue("from the child")

    assert await forks.ended(forks.child(enqueue)) == 0
    assert await asyncio.wait_for(producer.enqueue("from the parent"), 20)
    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == 1


@pytest.mark.row("B2.18")
async def test_a_second_event_loop_may_use_a_store_or_is_told_why_not(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")

    async def enqueue():
        await producer.enqueue_many([1, 2])

    elsewhere = asyncio.to_thread(lambda: asyncio.run(enqueue()))
    if store.config.backend == "postgres":
        with pytest.raises(pgqrs.ConnectionFailed, match="another event loop"):
            await elsewhere
    else:
        await elsewhere
    await enqueue()

    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == (2 if store.config.backend == "postgres" else 4)
