"""Plans of the outbox: a dispatcher reads the head of an index range, however much was published or waits."""

import pytest

from pgqrs.db.queries import Query
from pgqrs.db.tables import outbox
from rig.outbox import emit, new_runs
from rig.plans import explained

HOT = {
    "look": {"most": 256},
    "claim_events": {"ids": [1, 2], "token": 5, "lease_seconds": 30.0},
    "events_held": {"ids": [1, 2], "token": 5},
    "mark_published": {"event_id": 1, "token": 5},
    "mark_failed": {"event_id": 1, "token": 5, "error": "x", "delay": 1.0, "max_attempts": 20},
    "give_back": {"event_id": 1, "token": 5},
    "how_it_stands": {"event_id": 1},
    "push_later": {"run_id": 1, "event_id": 1, "delay": 1.0},
    "pull_next": {"run_id": 1},
    "set_aside": {"ids": [1, 2], "seconds": 5.0},
    "next_due": {},
    "replay_events": {"ids": [1, 2]},
}
BY_TIME = {"look", "next_due"}
BY_RUN = {"look", "claim_events", "push_later", "pull_next"}
PUBLISHED = Query("published", "update pgqrs_outbox_events set published_at = created_at where event_id <= 9000")


@pytest.fixture
async def filled(store):
    """10,000 events that the planner has never heard of, most of them published."""
    runs = await new_runs(store, 100)
    for part in range(10):
        await emit(store, [(run_id, "order.shipped", f'{{"n":{part}}}') for run_id in runs for _ in range(10)])
    await store.database.execute(PUBLISHED)
    return store


async def test_no_statement_of_a_dispatcher_walks_the_table_or_sorts_a_backlog(filled):
    for name, params in HOT.items():
        nodes = await explained(filled, outbox._SQL[name], params)
        walked = [
            node
            for node in nodes
            if ("Seq Scan" in node and "pgqrs_outbox_events" in node)
            or node in ("Sort", "Incremental Sort")
            or (node.startswith(("SCAN o", "SCAN first", "SCAN pgqrs_outbox_events")) and "INDEX" not in node)
            or "TEMP B-TREE" in node
        ]

        assert not walked, f"{name}: {nodes}"


async def test_each_statement_uses_the_index_that_was_made_for_it(filled):
    """Without statistics, all indexes of open events look alike to a planner: the texts must leave it no choice."""
    for name, params in HOT.items():
        nodes = " ".join(await explained(filled, outbox._SQL[name], params))

        assert ("pgqrs_outbox_events_due" in nodes) == (name in BY_TIME), f"{name}: {nodes}"
        assert ("pgqrs_outbox_events_order" in nodes) == (name in BY_RUN), f"{name}: {nodes}"


async def test_a_look_sees_no_more_than_it_asks_for(filled):
    seen = await outbox.look(filled.database, most=64)

    assert [each.event_id for each in seen] == list(range(9001, 9065))
