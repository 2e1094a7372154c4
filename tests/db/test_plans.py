"""Plans: the hot statements read index ranges, on tables that nobody has analysed, and sort nothing."""

import pytest

from pgqrs.db.tables import messages, queues
from pgqrs.db.tables.messages import Source
from rig.plans import explained

FENCES = [(1, 1), (2, 1)]
HOT = {
    "lease_messages": {"queue_ids": [1], "queues": [(1, 30.0, 10)], "batch": 10, "worker_id": 1},
    "settle_and_lease": {
        "queue_id": 1,
        "lease_seconds": 30.0,
        "batch": 10,
        "worker_id": 1,
        "done": FENCES,
        "keep": True,
    },
    "settle_and_lease_in_bands": {},
    "hand_back": {"given": [(1, 1, 0.0, 1)]},
    "pick_messages": {"queues": [(1,)], "batch": 10},
    "take_messages": {"ids": [1, 2], "queues": [(1, 30.0)], "worker_id": 1},
    "next_due": {"queues": [(1,)]},
    "find_leases": {"queues": [(1,)], "worker_id": 1},
    "archive_messages": {"given": FENCES},
    "copy_to_archive": {"given": FENCES},
    "remove_messages": {"ids": [1, 2]},
    "find_archived": {"given": FENCES},
    "find_released": {"given": FENCES},
    "find_messages": {"ids": [1]},
    "delete_messages": {"given": FENCES},
    "extend_leases": {"given": [(1, 1, 30.0)]},
    "renew_leases": {"given": [(1, 1, 30.0)]},
    "find_held": {"given": FENCES},
    "release_messages": {"given": FENCES, "delay": 0.0, "give_back": 1},
}
POSTGRES_ONLY = {"lease_messages", "archive_messages", "settle_and_lease", "settle_and_lease_in_bands"}
SQLITE_ONLY = {"pick_messages", "take_messages", "copy_to_archive", "remove_messages"}


@pytest.fixture
async def filled(store):
    """20,000 messages that the planner has never heard of."""
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    for _ in range(2):
        await producer.enqueue_many(range(5_000), priority=0)
        await producer.enqueue_many(range(5_000), priority=3, delay=3600)
    return store


@pytest.mark.row("B4.21")
async def test_no_hot_statement_walks_a_table_or_sorts_a_backlog(filled):
    postgres = filled.database.dialect.is_postgres
    for name in HOT.keys() - (SQLITE_ONLY if postgres else POSTGRES_ONLY):
        nodes = await explained(filled, messages._SQL[name], HOT[name])
        walked = [
            node
            for node in nodes
            if ("Seq Scan" in node and "pgqrs_messages" in node)
            or ("Sort" in node)
            or ("SCAN" in node and "pgqrs_messages" in node)
            or (node.startswith(("SCAN m", "SCAN a")) and "INDEX" not in node)
            or ("TEMP B-TREE FOR ORDER BY" in node)
        ]

        assert not walked, f"{name}: {nodes}"


@pytest.mark.row("B4.22")
async def test_a_lease_reads_the_ready_index(filled):
    postgres = filled.database.dialect.is_postgres
    for name in (
        ("lease_messages", "settle_and_lease", "settle_and_lease_in_bands") if postgres else ("pick_messages",)
    ):
        nodes = await explained(filled, messages._SQL[name], HOT[name])

        assert any("pgqrs_messages_ready" in node for node in nodes), nodes


@pytest.mark.row("B4.21")
async def test_a_lease_takes_the_head_although_higher_priorities_wait_for_their_time(filled):
    queue = await queues.get(filled.database, "tasks")

    leases = await messages.lease(filled.database, [Source(queue.queue_id, 30.0)], worker_id=1, batch=10)

    assert [lease.message_id for lease in leases] == list(range(1, 11))


async def test_a_lease_over_several_queues_goes_by_priority_across_them(store):
    ids = []
    for name in ("a", "b", "c"):
        await store.create_queue(name)
        ids.append((await queues.get(store.database, name)).queue_id)
    for name, priorities in (("a", (1, 5)), ("b", (9, 0)), ("c", (5, 7))):
        for priority in priorities:
            await (await store.producer(name)).enqueue(f"{name}{priority}", priority=priority)

    leases = await messages.lease(store.database, [Source(each, 30.0) for each in ids], worker_id=1, batch=4)
    rest = await messages.lease(store.database, [Source(each, 30.0) for each in ids], worker_id=1, batch=4)

    assert [lease.priority for lease in leases] == [9, 7, 5, 5]
    assert [lease.priority for lease in rest] == [1, 0]
