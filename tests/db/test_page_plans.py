"""Plans of what pages ask: ranges of indexes, on tables that nobody has analysed."""

import random

import pytest

from pgqrs.clock import EPOCH
from pgqrs.db.views import run_details, throughput
from rig.history import random_past, write
from rig.plans import explained

# Runs that were made up: nobody executed them, and they have no messages.
pytestmark = pytest.mark.breaks("I1", "I4", "I8", "I12")

PARAMS = {
    "window": 3600.0, "width": 60.0, "most": 100, "every": 1, "after": "", "page": 10, "run_ids": [1, 2],
    "given": [("mail",)], "run_id": 1, "ever": EPOCH, "after_time": EPOCH, "after_ordinal": -1, "after_step": "",
    "step_id": "a", "cut": 10, "start": 1, "is_first": 0, "worker_id": 1, "queue_id": 1, "within": 60.0, "ended_of": [1, 2],
}  # fmt: skip
# Workers, workflows and queues are few: those may be walked.
LARGE = ("pgqrs_workflow_runs", "pgqrs_workflow_steps", "pgqrs_workflow_events", "pgqrs_messages")
ALIASES = {"r": "pgqrs_workflow_runs", "s": "pgqrs_workflow_steps", "m": "pgqrs_messages"}
QUERIES = {**throughput._SQL, **run_details._SQL}


@pytest.fixture
async def filled(store, clock):
    """Two thousand runs that the planner has never heard of."""
    await write(store, random_past(random.Random(1), clock.now(), 2_000))
    return store


def walks(node):
    if "Seq Scan" in node:
        return any(table in node for table in LARGE)
    words = node.split()
    # Through an index from its one end to the other is a walk, too.
    return words[:1] == ["SCAN"] and ALIASES.get(words[1], words[1]) in LARGE


async def test_what_pages_ask_walks_no_large_table(filled):
    plans = {name: await explained(filled, QUERIES[name], PARAMS) for name in sorted(QUERIES)}

    assert not {name: nodes for name, nodes in plans.items() if any(map(walks, nodes))}


# How often each reads the index of what ended, by when it ended.
@pytest.mark.backends("sqlite", "postgres")
@pytest.mark.parametrize(
    ("name", "times"), [("ended_per_bucket", 3), ("durations_sampled", 2), ("workflows_at_a_glance", 4)]
)
async def test_what_ended_lately_is_read_by_when_it_ended(filled, name, times):
    nodes = await explained(filled, QUERIES[name], PARAMS)

    assert sum("pgqrs_workflow_runs_ended" in node for node in nodes) == times, nodes


@pytest.mark.backends("sqlite")
async def test_what_ended_is_counted_from_the_index_alone(filled):
    nodes = await explained(filled, QUERIES["ended_per_bucket"], PARAMS)

    assert any("COVERING INDEX pgqrs_workflow_runs_ended" in node for node in nodes), nodes
