-- name: settle
-- A whole batch in one round trip. Each row is a part of one write: its fence, and perhaps a step, an end, an event.
-- The fence comes first and locks; all that follows reads only what it let through. No join but to a primary key.
with held as materialized (
    select m.run_id, m.lease_token, given.*
    from {rows given: message_id id, token id, step_id text, ordinal int, step_status text, input json, step_output json, step_error json, step_attempts int, seconds seconds, status text, output json, error json, last_error text, signature text, waiting_for text, run_at time, delay seconds, give_back int, event_type text, event_data json}
    cross join pgqrs_messages as m
    where m.message_id = given.message_id
      and m.lease_token = given.token
      and m.leased_by is not null
    order by m.message_id, given.position
    {lock m}
),
recorded as (
    -- The first recorded result wins for ever.
    insert into pgqrs_workflow_steps
        (run_id, step_id, ordinal, status, input, output, error, attempts, started_at, completed_at)
    select run_id, step_id, ordinal, step_status, input, step_output, step_error, step_attempts,
        {after -held.seconds}, case when step_status in ('SUCCESS', 'ERROR') then {now} end
    from held
    where step_id is not null
    on conflict (run_id, step_id) do update
    set status = excluded.status,
        output = excluded.output,
        error = excluded.error,
        attempts = excluded.attempts,
        completed_at = excluded.completed_at
    where pgqrs_workflow_steps.status <> 'SUCCESS'
),
ended as (
    update pgqrs_workflow_runs as r
    set status = held.status,
        output = held.output,
        error = held.error,
        last_error = held.last_error,
        error_signature = held.signature,
        completed_at = {now},
        updated_at = {now}
    from held
    where r.run_id = held.run_id
      and held.status in ('SUCCESS', 'ERROR')
),
gone as (
    delete from pgqrs_messages as m
    using held
    where m.message_id = held.message_id
      and held.status in ('SUCCESS', 'ERROR')
),
-- Retried, asleep, waiting: the run is nobody's until its message is visible again.
rested as (
    update pgqrs_workflow_runs as r
    set status = held.status,
        error = coalesce(held.error, r.error),
        last_error = coalesce(held.last_error, r.last_error),
        waiting_for = held.waiting_for,
        paused_at = case when held.status = 'PAUSED' then {now} end,
        updated_at = {now}
    from held
    where r.run_id = held.run_id
      and held.status in ('PENDING', 'RUNNING', 'PAUSED')
),
put_back as (
    update pgqrs_messages as m
    set visible_after = coalesce(held.run_at, {after held.delay}),
        leased_by = null,
        attempts = m.attempts - held.give_back
    from held
    where m.message_id = held.message_id
      and held.status in ('PENDING', 'RUNNING', 'PAUSED')
),
told as (
    insert into pgqrs_workflow_events (run_id, event_type, data, created_at)
    select run_id, event_type, event_data, {now}
    from held
    where event_type is not null
    order by message_id, position
)
select run_id, message_id, lease_token
from held;
