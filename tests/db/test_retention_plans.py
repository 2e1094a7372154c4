"""Plans of retention: each statement reads what it was asked for, on tables that nobody has analysed."""

import json
from datetime import UTC, datetime

import pytest

from pgqrs.db.queries import Query
from pgqrs.db.upkeep import retention
from rig.past import Past

IDS = list(range(1, 101))
GIVEN = [(run_id,) for run_id in IDS]
THEN = datetime(2020, 1, 1, tzinfo=UTC)
RANGE = {"target_id": 1, "target_status": "SUCCESS", "keep": 60.0, "after_at": THEN, "after_id": 0, "batch": 100}
STATEMENTS = {
    "pick_ended": RANGE,
    "pick_deleted": RANGE,
    "lock_messages": {"given": GIVEN},
    "lock_ended": {"given": GIVEN, "target_status": "SUCCESS", "keep": 60.0, "apart": 0},
    "lock_deleted": {"given": GIVEN, "held": [1], "keep": 60.0},
    "parents_among": {"given": GIVEN},
    "detach_children": {"given": GIVEN, "most": 100},
    "delete_steps": {"run_ids": IDS},
    "delete_signals": {"run_ids": IDS},
    "delete_events_of_runs": {"run_ids": IDS},
    "delete_attributes": {"run_ids": IDS},
    "delete_messages_of_runs": {"run_ids": IDS},
    "delete_runs": {"run_ids": IDS},
    "pick_archived": RANGE,
    "delete_archived": {"ids": IDS},
    "pick_events": RANGE,
    "delete_events": {"given": GIVEN},
    "pick_published": RANGE,
    "pick_dead": RANGE,
    "delete_outbox": {"ids": IDS},
}
# An index on these columns alone says nothing about which rows are meant.
VAGUE = ("pgqrs_workflow_runs_status", "pgqrs_workflow_runs_workflow")

FILL = Query(
    "fill",
    """
insert into pgqrs_workflow_runs (workflow_id, status, created_at, updated_at, completed_at, max_attempts)
with recursive n (i) as (select 1 union all select i + 1 from n where i < 20000)
select 1, 'SUCCESS', {now}, {now}, {after -i}, 3 from n""",
)


@pytest.fixture
async def filled(store):
    """20,000 runs that the planner has never heard of."""
    await Past(store).run()
    await store.database.execute(FILL)
    return store.database


async def test_no_statement_of_a_batch_walks_a_table(filled):
    walked = {name: await walked_by(filled, name) for name in STATEMENTS}

    assert not {name: plan for name, plan in walked.items() if plan}


async def walked_by(filled, name):
    """What it reads from one end to the other, and the whole plan; nothing when there is no such part."""
    text, params = retention._SQL[name].text, STATEMENTS[name]
    if filled.dialect.is_postgres:
        rows = await filled.fetch(Query("explain", f"explain (format json) {text}"), **params)
        plan = json.loads(rows[0][0])[0]["Plan"]
        walked = [n for n in nodes(plan) if "Seq Scan" in n["Node Type"] or vague(n.get("Index Name", ""))]
    else:
        lines = [row[3] for row in await filled.fetch(Query("explain", f"explain query plan {text}"), **params)]
        plan = lines
        walked = [
            line
            for line in lines
            if vague(line) or (line.startswith("SCAN") and "json_each" not in line.lower() and "pgqrs" in line)
        ]

    return (walked, plan) if walked else None


def vague(text):
    return any(name in text for name in VAGUE)


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
