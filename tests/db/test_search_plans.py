"""Plans of the search: each text reads a range of its own index, on tables that nobody has analysed."""

import random

import pytest

from pgqrs.db.views import metrics, search
from pgqrs.filters import RunFilter
from rig.history import random_past, write
from rig.plans import explained

# Runs that were made up: nobody executed them, and they have no messages.
pytestmark = pytest.mark.breaks("I1", "I4", "I8", "I12")

# What each text is for, and the index whose range it must read.
DRIVES = {
    "newest": "pgqrs_workflow_runs_pkey",
    "by_workflow": "pgqrs_workflow_runs_workflow",
    "by_status": "pgqrs_workflow_runs_status",
    "by_error": "pgqrs_workflow_runs_failed",
    "by_attribute": "pgqrs_run_attributes_pkey",
    "by_signature": "pgqrs_workflow_runs_signature",
    "by_parent": "pgqrs_workflow_runs_parent",
    "by_key": "pgqrs_workflow_runs_idempotency",
    "by_deletion": "pgqrs_workflow_runs_deleted",
    "by_end": "pgqrs_workflow_runs_ended",
}
# These sort what they find: it is little, or has been counted.
SORTING = {"by_deletion", "by_end", "by_workflow", "by_status"}
# SQLite has no name for the index of a primary key.
OWN_NAME = {
    "pgqrs_workflow_runs_pkey": "INTEGER PRIMARY KEY",
    "pgqrs_run_attributes_pkey": "sqlite_autoindex_pgqrs_run_attributes_1",
    # And tells how much of it is a condition.
    "pgqrs_workflow_runs_workflow": "pgqrs_workflow_runs_workflow (workflow_id=? AND status=? AND run_id",
    "pgqrs_workflow_runs_status": "pgqrs_workflow_runs_status (status=? AND run_id",
    "pgqrs_workflow_runs_signature": "pgqrs_workflow_runs_signature (error_signature=? AND run_id",
    "pgqrs_workflow_runs_parent": "pgqrs_workflow_runs_parent (parent_run_id=? AND run_id",
}
OWN = {
    "workflow_id": 1,
    "name": "customer",
    "value": "c1",
    "ended_of": [1],
    "ended_as": "ERROR",
    "ended_from": search._ALWAYS[0],
    "ended_to": search._ALWAYS[1],
    "error_signature": "TimeoutError-1",
    "parent_run_id": 1,
    "idempotency_key": "key-1",
    "before": search.NEWEST,
    "most": 50,
}


@pytest.fixture
async def filled(store, clock):
    """Two thousand runs that the planner has never heard of."""
    await write(store, random_past(random.Random(1), clock.now(), 2_000))
    return store


async def test_each_text_of_the_search_reads_a_range_of_its_index(filled):
    for name in DRIVES:
        await reads_a_range(filled, name)


async def reads_a_range(filled, name):
    prepared = await search.prepared(filled.database, RunFilter())
    nodes = await explained(filled, search._SQL[name], {**prepared.params(), **OWN})
    index = DRIVES[name]
    if not filled.database.dialect.is_postgres:
        index = OWN_NAME.get(index, index)
    if filled.config.backend == "turso" and name in ("by_end", "by_deletion"):
        # Turso (beta) takes the index by workflow, and looks at the time row by row.
        index = "pgqrs_workflow_runs_workflow"

    assert any(index in node for node in nodes), (name, nodes)
    assert not [node for node in nodes if walks(node)], (name, nodes)
    sorting = [node for node in nodes if "Sort" in node or "TEMP B-TREE FOR ORDER" in node]
    assert name in SORTING or not sorting, (name, nodes)


def walks(node):
    return (
        ("Seq Scan" in node and "pgqrs_" in node)
        or node.startswith(("SCAN pgqrs_workflow_runs", "SCAN pgqrs_run_", "SCAN pgqrs_messages"))
        or node in ("SCAN r", "SCAN a")
    )


def test_every_text_that_drives_a_search_has_its_plan_tested():
    assert {name for name in search._SQL if name.startswith("by_")} | {"newest"} == set(DRIVES)


@pytest.mark.parametrize(
    "name",
    [
        "runs_by_status",
        "runs_of_workflow_by_status",
        "ended_sample",
        "queue_depths",
        "exhausted_depths",
        "live_runs_by_workflow",
    ],
)
async def test_metrics_read_index_ranges_only(filled, name):
    params = {
        "workflow_id": 1,
        "window": 3600.0,
        "most": 100,
        "queue_ids": [1],
        "levels": 100,
        "workflows": 100,
        "after": "",
    }
    nodes = await explained(filled, metrics._SQL[name], params)

    # The names of workflows, which are few, are sorted by their bytes; runs are counted for those within the limit.
    catalogue = nodes[:4] == ["Limit", "Result", "Sort", "Seq Scan pgqrs_workflows"]
    rest = nodes[4:] if catalogue else nodes
    assert not [node for node in rest if walks(node) or node == "SCAN m"], nodes
