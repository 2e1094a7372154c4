"""Many rows quickly: a store with a past of a million runs, as a busy year would leave it.

Made of one statement a table and chunk, on either database; every figure is a function of the run's id, so that two
stores hold the same.
"""

import time

import pgqrs
from pgqrs.db.queries import Query

CHUNK = 50_000
WORKFLOWS = 12
STEPS = 5
# The newest of them have not ended: this share of the whole, at most this many.
LIVE_SHARE, MOST_LIVE = 50, 20_000
# Between two triggers.
SECONDS_APART = 2.5

NUMBERS = """with recursive n (i) as (
    select cast(:first as bigint) + 1
  union all
    select i + 1 from n where i < cast(:first as bigint) + cast(:count as bigint)
)"""

_AGE = f"(i - cast(:total as bigint)) * {SECONDS_APART}"
# Of a hundred that have ended: three failed, one was cancelled. Of those that live: most are ready, some wait.
_STATUS = """case
    when i > cast(:ended as bigint) then case i % 10
        when 0 then 'RUNNING' when 1 then 'PAUSED' when 2 then 'PAUSED' else 'PENDING' end
    when (i * 7919) % 100 < 3 then 'ERROR'
    when (i * 7919) % 100 < 4 then 'CANCELLED'
    else 'SUCCESS' end"""

_RUNS = Query(
    "past_runs",
    f"""
insert into pgqrs_workflow_runs (run_id, workflow_id, status, input, output, error, last_error, error_signature,
    created_at, started_at, completed_at, updated_at, worker_id, attempt, max_attempts, idempotency_key,
    parent_run_id, waiting_for, paused_at)
{NUMBERS}, r as (select i, {_STATUS} as status from n)
select i, 1 + (i * 31) % {WORKFLOWS}, status, '{{"customer": "c42", "sku": "A-1", "items": [1, 2, 3]}}',
    cast(case when status = 'SUCCESS' then '{{"ok": true, "total": 129.9}}' end as {{json}}),
    cast(case when status = 'ERROR' then '{{"type": "TimeoutError", "message": "no answer"}}' end as {{json}}),
    case when status = 'ERROR' then 'TimeoutError: no answer from host ' || (i % 100) end,
    case when status = 'ERROR' then 'TimeoutError:' || (i % 20) end,
    {{after ({_AGE})}}, {{after ({_AGE} + 0.5)}},
    case when i <= cast(:ended as bigint) then {{after ({_AGE} + 2)}} end, {{after ({_AGE} + 2)}},
    1 + i % 16, 1, 3, case when i % 10 = 7 then 'key-' || i end, case when i > 100 and i % 4 = 0 then 1 + i % 50 end,
    case when status = 'PAUSED' then 'approve' end, case when status = 'PAUSED' then {{after ({_AGE} + 2)}} end
from r order by i""",
)
_STEPS = Query(
    "past_steps",
    f"""
insert into pgqrs_workflow_steps (run_id, step_id, ordinal, status, output, attempts, started_at, completed_at)
{NUMBERS}
select n.i, s.name, s.ordinal, case when s.ordinal = 5 and r.status = 'PAUSED' then 'PAUSED'
    when s.ordinal = 5 and r.status = 'ERROR' then 'ERROR' else 'SUCCESS' end,
    '{{"done": true}}', 1, {{after ({_AGE} + 0.5 + s.ordinal * 0.2)}}, {{after ({_AGE} + 0.6 + s.ordinal * 0.2)}}
from n join pgqrs_workflow_runs r on r.run_id = n.i
cross join (select 1 as ordinal, 'reserve' as name union all select 2, 'charge' union all select 3, 'pack'
    union all select 4, 'ship' union all select 5, '~signal:approve') as s""",
)
_EVENTS = Query(
    "past_events",
    f"""
insert into pgqrs_workflow_events (run_id, event_type, data, created_at)
{NUMBERS}
select n.i, e.kind, '[]', {{after ({_AGE})}}
from n cross join (select 'created' as kind union all select 'started') as e""",
)
_ATTRIBUTES = Query(
    "past_attributes",
    f"""
insert into pgqrs_run_attributes (name, value, run_id)
{NUMBERS}
select 'customer', 'c' || (i % 5000), i from n""",
)
_MESSAGES = Query(
    "past_messages",
    """
insert into pgqrs_messages (queue_id, payload, run_id, visible_after, enqueued_at, max_attempts, attempts)
select w.queue_id, '[]', r.run_id, case when r.status = 'PAUSED' then {after 3600} else {now} end, r.created_at, 3, 0
from pgqrs_workflow_runs r join pgqrs_workflows w on w.workflow_id = r.workflow_id
where r.run_id > cast(:ended as bigint)""",
)
_OUTBOX = Query(
    "past_outbox",
    f"""
insert into pgqrs_outbox_events (event_uuid, aggregate_id, workflow, event_type, payload, created_at, visible_after,
    published_at)
{NUMBERS}
select 'e-' || i, i, 'flow_1', 'succeeded', '{{"run_id": 1}}', {{after ({_AGE})}}, {{after ({_AGE})}},
    case when i <= cast(:ended as bigint) then {{after ({_AGE} + 3)}} end
from n""",
)


async def past(store: pgqrs.Store, runs: int) -> None:
    """So many runs with five steps and two events each; the newest have not ended. An empty store only."""
    began = time.perf_counter()
    for number in range(1, WORKFLOWS + 1):
        await store.create_workflow(f"flow_{number}")
    db, given = store.database, {"total": runs, "ended": runs - min(runs // LIVE_SHARE, MOST_LIVE)}
    for first in range(0, runs, CHUNK):
        size = min(CHUNK, runs - first)
        for query in (_RUNS, _STEPS, _EVENTS, _ATTRIBUTES):
            known = {name: value for name, value in given.items() if f":{name}" in query.text}
            await db.execute(query, first=first, count=size, **known)
        if first % (10 * CHUNK) == 0:
            await db.execute(_OUTBOX, first=first, count=size, **given)
        print(f"  {first + size:,} runs, {time.perf_counter() - began:.0f} s", flush=True)
    await db.execute(_MESSAGES, ended=given["ended"])
