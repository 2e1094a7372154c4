-- name: claim_runs
-- One round trip: find, lease, start. `is_new`: never leased before. `has_steps`: there are steps to be read.
-- A run that has ended meanwhile gives no row.
{include _picked},
{include _allowed},
taken as (
    update pgqrs_messages as m
    set visible_after = {after allowed.lease_seconds},
    {include _taken}
    from allowed
    where m.ctid = allowed.place
    returning {include _lease}, allowed.due_at, allowed.leased_by as taken_from, allowed.lease_seconds
)
update pgqrs_workflow_runs as r
set status = 'RUNNING',
    attempt = taken.attempts,
    started_at = coalesce(r.started_at, {now}),
    worker_id = :worker_id,
    paused_at = null,
    waiting_for = null,
    updated_at = {now}
from taken
where r.run_id = taken.run_id
  and r.status not in ('SUCCESS', 'ERROR', 'CANCELLED')
returning taken.message_id, taken.queue_id, taken.payload, taken.run_id, taken.priority, taken.visible_after,
    taken.enqueued_at, taken.attempts, taken.max_attempts, taken.lease_token, taken.taken_from,
    taken.due_at, r.workflow_id, {text r.input}, r.max_attempts, r.parent_run_id, r.created_at, {text r.attributes},
    {text r.headers}, r.started_at, r.started_at = r.updated_at as is_new,
    exists (select 1 from pgqrs_workflow_steps as s where s.run_id = r.run_id) as has_steps;

-- name: start_runs
-- As the common text, and: the messages stay locked meanwhile, so that a pause that comes between waits, or is seen.
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
returning run_id, workflow_id, {text input}, max_attempts, parent_run_id, created_at, {text attributes}, {text headers},
    started_at, started_at = updated_at as is_new;
