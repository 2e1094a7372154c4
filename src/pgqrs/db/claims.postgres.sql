-- name: start_runs
-- As the common text, and: the messages stay locked meanwhile, so that a pause that comes between waits, or is seen;
-- and what is to be told of the runs that start is told in the same statement.
with held (id, attempts) as (
    select m.run_id, given.attempts
    from {rows given: id id, message_id id, token id, attempts int}
    cross join pgqrs_messages as m
    where m.message_id = given.message_id
      and m.lease_token = given.token
      and m.leased_by is not null
    {lock m}
),
started as (
    update pgqrs_workflow_runs
    set status = 'RUNNING',
        attempt = held.attempts,
        started_at = coalesce(started_at, {now}),
        worker_id = :worker_id,
        paused_at = null,
        waiting_for = null,
        updated_at = {now}
    from held
    where run_id = held.id
      and status not in ('SUCCESS', 'ERROR', 'CANCELLED')
    returning run_id, workflow_id, input, max_attempts, parent_run_id, created_at, attributes
),
told as (
    insert into pgqrs_workflow_events (run_id, event_type, data, created_at)
    select events.run_id, events.event_type, events.data, {now}
    from {rows events: run_id id, event_type text, data json}
    where events.run_id in (select started.run_id from started)
)
select run_id, workflow_id, {text input}, max_attempts, parent_run_id, created_at, {text attributes}
from started;
