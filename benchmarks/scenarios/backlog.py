"""Does it stay as fast: with much that is ready, and beside much that is done.

Two schemas in one database (on SQLite two files), one with little and one with much, in turns. Statistics are none or
stale, as in the first minutes of a real backlog; autovacuum does what it does.
"""

from typing import Any

import pgqrs
from benchmarks.filling import CHUNK, NUMBERS
from benchmarks.scenarios.interleaved import drained, executed, in_turns
from benchmarks.scenarios.looking import ARCHIVED, ENDED
from benchmarks.scenarios.place import QUEUE, WORKFLOW, Place
from pgqrs.db.queries import Query

LITTLE = 10_000
# Per round: enough to take a while, little beside the backlog.
MESSAGES, RUNS = 10_000, 5_000

READY_MESSAGES = Query(
    "ready_messages",
    f"""
insert into pgqrs_messages (queue_id, payload, visible_after, enqueued_at, max_attempts)
{NUMBERS}
select q.queue_id, '1', {{now}}, {{now}}, 3
from n cross join pgqrs_queues q
where q.name = '{QUEUE}'
""",
)
READY_RUNS = Query(
    "ready_runs",
    f"""
insert into pgqrs_workflow_runs (workflow_id, status, created_at, updated_at, max_attempts)
{NUMBERS}
select w.workflow_id, 'PENDING', {{now}}, {{now}}, 3
from n cross join pgqrs_workflows w
where w.name = '{WORKFLOW}'
""",
)
READY_RUN_MESSAGES = Query(
    "ready_run_messages",
    """
insert into pgqrs_messages (queue_id, payload, run_id, visible_after, enqueued_at, max_attempts)
select w.queue_id, '[]', r.run_id, {now}, {now}, 3
from pgqrs_workflow_runs r
join pgqrs_workflows w on w.workflow_id = r.workflow_id
where r.run_id > :first and r.run_id <= cast(:first as bigint) + cast(:count as bigint)
""",
)
FINISHED_RUNS = Query(
    "finished_runs",
    f"""
insert into pgqrs_workflow_runs
    (workflow_id, status, created_at, started_at, completed_at, updated_at, attempt, max_attempts)
{NUMBERS}
select w.workflow_id, 'SUCCESS', {{now}}, {{now}}, {{now}}, {{now}}, 1, 3
from n cross join pgqrs_workflows w
where w.name = '{WORKFLOW}'
""",
)
FINISHED_STEPS = Query(
    "finished_steps",
    """
insert into pgqrs_workflow_steps (run_id, step_id, ordinal, status, attempts, started_at, completed_at)
select r.run_id, 'step_0', 0, 'SUCCESS', 1, {now}, {now}
from pgqrs_workflow_runs r
where r.run_id > :first and r.run_id <= cast(:first as bigint) + cast(:count as bigint)
""",
)
ARCHIVED_MESSAGES = Query(
    "archived_messages",
    f"""
insert into pgqrs_archived_messages
    (message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, archived_at)
{NUMBERS}
select i + 1000000000, q.queue_id, '1', 0, {{now}}, 1, 1, {{now}}
from n cross join pgqrs_queues q
where q.name = '{QUEUE}'
""",
)


async def backlog(place: Place) -> dict[str, Any]:
    """`count` ready messages and `count` ready runs against ten thousand of each."""
    few, many = Place(place.dsn, LITTLE, schema="few"), Place(place.dsn, place.count, schema="many")
    async with few.store() as little, many.store() as much:
        for store, size in ((little, few.count), (much, many.count)):
            await _fill(store, READY_RUNS, size)
            await _fill(store, READY_RUN_MESSAGES, size)
            await _fill(store, READY_MESSAGES, size)
        messages, runs = min(MESSAGES, LITTLE), min(RUNS, LITTLE)
        rates = await in_turns(
            {
                "drain_few": lambda: drained(little, few, messages, look=ARCHIVED),
                "drain_many": lambda: drained(much, many, messages, look=ARCHIVED),
                "runs_few": lambda: executed(little, few, runs, look=ENDED),
                "runs_many": lambda: executed(much, many, runs, look=ENDED),
            }
        )
    return _figures(place, rates, f"{place.count:,} ready against {LITTLE:,}")


async def finished(place: Place) -> dict[str, Any]:
    """Beside `count` finished runs and `count` archived messages, against none."""
    few, many = Place(place.dsn, 0, schema="few"), Place(place.dsn, place.count, schema="many")
    async with few.store() as little, many.store() as much:
        await _fill(much, FINISHED_RUNS, many.count)
        await _fill(much, FINISHED_STEPS, many.count)
        await _fill(much, ARCHIVED_MESSAGES, many.count)
        rates = await in_turns(
            {
                "drain_few": lambda: drained(little, few, MESSAGES),
                "drain_many": lambda: drained(much, many, MESSAGES),
                "runs_few": lambda: executed(little, few, RUNS),
                "runs_many": lambda: executed(much, many, RUNS),
            }
        )
    return _figures(place, rates, f"beside {place.count:,} finished runs and archived messages against none")


def _figures(place: Place, rates: dict[str, float], what: str) -> dict[str, Any]:
    return {
        "count": place.count,
        "rate": rates["drain_many"],
        "drain_ratio": rates["drain_many"] / rates["drain_few"],
        "runs_ratio": rates["runs_many"] / rates["runs_few"],
        **{f"rate_{name}": rate for name, rate in rates.items()},
        "settings": f"{what}; {MESSAGES:,} messages and {RUNS:,} one-step runs a round, "
        f"concurrency {place.concurrency}",
    }


async def _fill(store: pgqrs.Store, query: Query, count: int) -> None:
    """In parts: a statement has half a minute. Ids of runs begin with 1, as the schema is new."""
    for first in range(0, count, CHUNK):
        await store.database.execute(query, first=first, count=min(CHUNK, count - first))
