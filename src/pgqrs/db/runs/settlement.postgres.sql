-- A whole batch in one round trip. Each step comes with its run's fence, and so does each end and event. The fences are
-- first and lock; all that follows reads only what they let through. No join but to a primary key.

-- name: _held_and_recorded
with held as materialized (
    select m.run_id, steps.*
    from {rows steps: message_id id, token id, step_id text, ordinal int, status text, input json, output json, error json, attempts int, seconds seconds, sequence int}
    cross join pgqrs_messages as m
    where m.message_id = steps.message_id
      and m.lease_token = steps.token
      and m.leased_by is not null
    order by m.message_id
    {lock m}
),
recorded as (
    insert into pgqrs_workflow_steps
        (run_id, step_id, ordinal, status, input, output, error, attempts, sequence, started_at, completed_at)
    select run_id, step_id, ordinal, status, input, output, error, attempts, sequence,
        {after -held.seconds}, case when status in ('SUCCESS', 'ERROR') then {now} end
    from held
    {include _first_wins}
)

-- name: _who_was_lost
-- Nearly always all were held, and one null says so; else those that were.
select case when (select count(*) from answered) < :expected::bigint
    then (select coalesce(json_agg(json_build_array(message_id, token)), '[]') from answered)::text end

-- name: settle_steps
-- Nothing but steps, as most of the time: what is not in a statement need not be set up for it.
{include _held_and_recorded},
answered as (select message_id, token from held)
{include _who_was_lost};

-- name: settle
-- Deleting the message of what has ended, and putting back that of what rests, is the fence of those.
{include _held_and_recorded},
-- After the steps' fences: a run's last steps come with its end, and their message must not be gone by then.
ends as materialized (
    select ends.*, (select count(*) from held) as after_steps
    from {rows ends: message_id id, token id, status text, output json, error json, last_error text, signature text, waiting_for text, run_at time, delay seconds, give_back int, event_type text, event_data json}
),
gone as (
    delete from pgqrs_messages as m
    using ends
    where m.message_id = ends.message_id
      and m.lease_token = ends.token
      and m.leased_by is not null
      and ends.status in ('SUCCESS', 'ERROR')
      and ends.after_steps >= 0
    returning m.run_id, ends.*
),
ended as (
    update pgqrs_workflow_runs as r
    set status = gone.status,
        output = gone.output,
        error = gone.error,
        last_error = gone.last_error,
        error_signature = gone.signature,
        completed_at = {now},
        updated_at = {now}
    from gone
    where r.run_id = gone.run_id
),
-- Retried, asleep, waiting: the run is nobody's until its message is visible again.
put_back as (
    update pgqrs_messages as m
    set visible_after = coalesce(ends.run_at, {after ends.delay}),
        leased_by = null,
        attempts = m.attempts - ends.give_back
    from ends
    where m.message_id = ends.message_id
      and m.lease_token = ends.token
      and m.leased_by is not null
      and ends.status in ('PENDING', 'RUNNING', 'PAUSED')
      and ends.after_steps >= 0
    returning m.run_id, ends.*
),
rested as (
    update pgqrs_workflow_runs as r
    set status = put_back.status,
        error = coalesce(put_back.error, r.error),
        last_error = coalesce(put_back.last_error, r.last_error),
        waiting_for = put_back.waiting_for,
        paused_at = case when put_back.status = 'PAUSED' then {now} end,
        updated_at = {now}
    from put_back
    where r.run_id = put_back.run_id
),
-- Events that come without an end.
noted as materialized (
    select m.run_id, ends.*
    from ends
    cross join pgqrs_messages as m
    where m.message_id = ends.message_id
      and m.lease_token = ends.token
      and m.leased_by is not null
      and ends.status is null
    {lock m}
),
settled as (
    select * from noted
    union all
    select * from gone
    union all
    select * from put_back
),
told as (
    insert into pgqrs_workflow_events (run_id, event_type, data, created_at)
    select run_id, event_type, event_data, {now}
    from settled
    where event_type is not null
    order by message_id, position
),
answered as (
    select message_id, token from held
    union all
    select message_id, token from settled
)
{include _who_was_lost};
