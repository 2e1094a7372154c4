"""Looking into a queue: what is in it, in the order in which it would be taken, and nothing is taken."""

import pytest

import pgqrs
from pgqrs.api.cursors import to_cursor


@pytest.fixture
async def queue(store):
    await store.create_queue("tasks")
    return await store.producer("tasks")


async def pages(store, size):
    """All of it, a page at a time."""
    found, cursor = [], None
    while True:
        page = await pgqrs.admin(store).peek("tasks", limit=size, cursor=cursor)
        assert len(page) <= size
        found.append(list(page))
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_each_message_says_what_it_is_doing(store, queue, clock):
    for name, options in (("dead", {"max_attempts": 1}), ("leased", {}), ("ready", {}), ("later", {"delay": 60})):
        await queue.enqueue(name, **options)
        if name in ("dead", "leased"):
            consumer = await store.consumer("tasks")
            await consumer.dequeue(1, lease_seconds=1 if name == "dead" else 3600)
            clock.advance(2)

    [found] = await pages(store, 10)

    assert {message.payload: message.state for message in found} == {
        "dead": "dead",
        "leased": "leased",
        "ready": "ready",
        "later": "scheduled",
    }
    assert next(message.leased_by for message in found if message.state == "leased") == consumer.worker_id


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_pages_of_any_size_give_everything_once_and_in_order(store, queue, clock, size):
    for n in range(12):
        await queue.enqueue(n, priority=n % 3, delay=n // 4, max_attempts=1 if n in (1, 5) else 3)
    clock.advance(2)
    consumer = await store.consumer("tasks")
    taken = [message.payload for message in await consumer.dequeue(4, lease_seconds=30)]

    found = [message for page in await pages(store, size) for message in page]

    assert sorted(message.payload for message in found) == list(range(12))
    order = [(message.is_exhausted, -message.priority, message.visible_after, message.id) for message in found]
    assert order[: -sum(m.is_exhausted for m in found) or None] == sorted(o for o in order if not o[0])
    assert len(taken) == 4


async def test_what_is_seen_first_is_taken_first(store, queue):
    for n in range(6):
        await queue.enqueue(n, priority=n % 2)
    [seen] = await pages(store, 10)

    taken = await (await store.consumer("tasks")).dequeue(6)

    assert [message.id for message in seen] == [message.id for message in taken]


async def test_the_queue_of_a_workflow_shows_its_runs(store):
    await store.create_workflow("flow")
    run_id = await pgqrs.workflow("flow").trigger(None).execute(store)

    [message] = await pgqrs.admin(store).peek("flow")

    assert (message.run_id, message.state) == (run_id, "ready")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "cursor",
    ["", "x", "W10", "bnVsbA", "WzEsMiwzLDRd", "\u00e9", "W3RydWUsMCwxZTQwMCwxXQ", "A" * 5000]
    # Whole, and of other lists.
    + [to_cursor(*each) for each in [(1,), (0, 0), (2, 0, 0, 1), (0, 2**40, 0, 1), (0, 0, 2**62, 1), (0, 0, 0, -1)]]
    + [to_cursor(0, 0, 0, 1, name="x")],
)
async def test_a_broken_cursor_is_refused(store, queue, cursor):
    with pytest.raises(pgqrs.ConfigError, match="broken"):
        await pgqrs.admin(store).peek("tasks", cursor=cursor)
