-- name: start_runs
-- As the common text, and the messages stay locked meanwhile: a pause that comes between waits, or is seen.
with held (id, attempts) as (
    select m.run_id, given.attempts
    from {rows given: id id, message_id id, token id, attempts int}
    cross join pgqrs_messages as m
    where m.message_id = given.message_id
      and m.lease_token = given.token
      and m.leased_by is not null
    {lock m}
)
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
returning run_id, workflow_id, {text input}, max_attempts, parent_run_id, created_at;
