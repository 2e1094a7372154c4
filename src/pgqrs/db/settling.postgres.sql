-- A whole batch in one round trip. Each step comes with its run's fence, and so does each end and event. The fences are
-- first and lock; all that follows reads only what they let through. No join but to a primary key.

-- name: _held_and_recorded
with held as materialized (
    select m.run_id, steps.*
    from {rows steps: message_id id, token id, step_id text, ordinal int, status text, input json, output json, error json, attempts int, seconds seconds}
    cross join pgqrs_messages as m
    where m.message_id = steps.message_id
      and m.lease_token = steps.token
      and m.leased_by is not null
    order by m.message_id
    {lock m}
),
recorded as (
    -- The first recorded result wins for ever.
    insert into pgqrs_workflow_steps
        (run_id, step_id, ordinal, status, input, output, error, attempts, started_at, completed_at)
    select run_id, step_id, ordinal, status, input, output, error, attempts,
        {after -held.seconds}, case when status in ('SUCCESS', 'ERROR') then {now} end
    from held
    on conflict (run_id, step_id) do update
    set status = excluded.status,
        output = excluded.output,
        error = excluded.error,
        attempts = excluded.attempts,
        completed_at = excluded.completed_at
    where pgqrs_workflow_steps.status <> 'SUCCESS'
)

-- name: settle_steps
-- Nothing but steps, as most of the time: what is not in a statement need not be set up for it.
{include _held_and_recorded}
select message_id, token from held;

-- name: settle
{include _held_and_recorded},
settled as materialized (
    select m.run_id, ends.*
    from {rows ends: message_id id, token id, status text, output json, error json, last_error text, signature text, waiting_for text, run_at time, delay seconds, give_back int, event_type text, event_data json}
    cross join pgqrs_messages as m
    where m.message_id = ends.message_id
      and m.lease_token = ends.token
      and m.leased_by is not null
    order by m.message_id, ends.position
    {lock m}
),
ended as (
    update pgqrs_workflow_runs as r
    set status = settled.status,
        output = settled.output,
        error = settled.error,
        last_error = settled.last_error,
        error_signature = settled.signature,
        completed_at = {now},
        updated_at = {now}
    from settled
    where r.run_id = settled.run_id
      and settled.status in ('SUCCESS', 'ERROR')
),
gone as (
    delete from pgqrs_messages as m
    using settled
    where m.message_id = settled.message_id
      and settled.status in ('SUCCESS', 'ERROR')
),
-- Retried, asleep, waiting: the run is nobody's until its message is visible again.
rested as (
    update pgqrs_workflow_runs as r
    set status = settled.status,
        error = coalesce(settled.error, r.error),
        last_error = coalesce(settled.last_error, r.last_error),
        waiting_for = settled.waiting_for,
        paused_at = case when settled.status = 'PAUSED' then {now} end,
        updated_at = {now}
    from settled
    where r.run_id = settled.run_id
      and settled.status in ('PENDING', 'RUNNING', 'PAUSED')
),
put_back as (
    update pgqrs_messages as m
    set visible_after = coalesce(settled.run_at, {after settled.delay}),
        leased_by = null,
        attempts = m.attempts - settled.give_back
    from settled
    where m.message_id = settled.message_id
      and settled.status in ('PENDING', 'RUNNING', 'PAUSED')
),
told as (
    insert into pgqrs_workflow_events (run_id, event_type, data, created_at)
    select run_id, event_type, event_data, {now}
    from settled
    where event_type is not null
    order by message_id, position
)
select message_id, token from held
union all
select message_id, token from settled;
