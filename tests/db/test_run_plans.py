"""Plans: what a worker asks for each batch of runs reads primary keys and index ranges, whatever the tables hold."""

import pytest

import pgqrs
from pgqrs.db.runs import claims, settlement
from rig.plans import explained

FENCES = [(1, 1), (2, 1)]
HOT = {
    "hold": (settlement, {"given": FENCES}),
    "record_steps": (settlement, {"given": [(1, "a", 0, "SUCCESS", None, "1", None, 1, 0.0)]}),
    "end_runs": (settlement, {"given": [(1, "SUCCESS", "1", None, None, None)]}),
    "yield_runs": (settlement, {"given": [(1, "PAUSED", None, None, "x")]}),
    "yield_messages": (settlement, {"given": [(1, None, 1.0, 1)]}),
    "settle": (settlement, {}),
    "settle_steps": (settlement, {}),
    "claim_runs": (claims, {}),
    "start_runs": (claims, {"worker_id": 1, "given": [(1, 1, 1, 1)]}),
}
POSTGRES_ONLY = {"settle", "settle_steps", "claim_runs"}


@pytest.fixture
async def filled(store):
    """Runs that the planner has never heard of."""
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger_many([None] * 2_000).execute(store)
    return store


@pytest.mark.row("B4.21")
async def test_no_statement_of_a_batch_walks_a_table(filled):
    there = HOT
    if not filled.database.dialect.is_postgres:
        assert all(HOT[name][0]._SQL[name].postgres_text is not None for name in POSTGRES_ONLY)
        there = {name: each for name, each in HOT.items() if name not in POSTGRES_ONLY}
    plans = {name: await explained(filled, module._SQL[name], params) for name, (module, params) in there.items()}

    assert not {name: nodes for name, nodes in plans.items() if any(map(walks, nodes))}


def walks(node):
    return (
        ("Seq Scan" in node and "pgqrs_" in node)
        or "Hash" in node
        or "Merge" in node
        or node.startswith(("SCAN pgqrs", "SCAN m", "SCAN r"))
    )
