"""Plans of a look at what has changed: the ends of indexes, nothing sorted, no large table read."""

import random

import pytest

from pgqrs.db.views import changes
from rig.history import random_past, write
from rig.plans import explained

# Runs that were made up: nobody executed them, and they have no messages.
pytestmark = [pytest.mark.breaks("I1", "I4", "I8", "I12"), pytest.mark.backends("sqlite", "postgres")]

PARAMS = {"most": 10, "after": 1, "most_steps": 10}
# A store has some of these, never many.
SMALL = ("pgqrs_queues", "pgqrs_schedules")
# By how much a text must read of an index, in SQLite's words.
RANGES = {
    "pulse": ("pgqrs_workflow_runs_status (status=?)", "pgqrs_workflow_runs_ended (workflow_id=? AND status=?"),
    "events_after": ("INTEGER PRIMARY KEY (rowid>?)",),
    "runs_after": ("INTEGER PRIMARY KEY (rowid>?)",),
    "runs_at_work": ("pgqrs_workflow_runs_status (status=?)", "(run_id=?)"),
}


@pytest.mark.parametrize("name", RANGES)
async def test_a_look_reads_the_ends_of_indexes(store, clock, name):
    await write(store, random_past(random.Random(1), clock.now(), 500))

    plan = await explained(store, changes._SQL[name], PARAMS)

    assert not [node for node in plan if "Sort" in node or "TEMP B-TREE" in node]
    if store.config.backend == "postgres":
        whole = {node.removeprefix("Seq Scan ") for node in plan if node.startswith("Seq Scan")}
        assert whole <= set(SMALL)
    else:
        for read in RANGES[name]:
            assert any(read in node for node in plan), plan
