-- name: insert_runs
-- Those whose idempotency key a live run has already give no row.
insert into pgqrs_workflow_runs
    (workflow_id, status, input, created_at, updated_at, max_attempts, priority, parent_run_id, attributes,
     dead_letter_of, headers, idempotency_key)
select cast(:workflow_id as bigint), 'PENDING', given.input, {now}, {now}, cast(:max_attempts as integer),
    cast(:priority as integer), cast(:parent_run_id as bigint), {as_json :attributes},
    cast(:dead_letter_of as bigint), {as_json :headers}, given.key
from {rows given: input json, key text}
-- `where true`: without it SQLite takes what follows for a join condition.
where true
order by given.position
on conflict (idempotency_key) where idempotency_key is not null and deleted_at is null do nothing
returning run_id, idempotency_key;

-- name: find_runs_by_key
select r.idempotency_key, r.run_id, r.workflow_id, {text r.input}
from {rows given: key text}
cross join pgqrs_workflow_runs as r
where r.idempotency_key = given.key
  and r.deleted_at is null;

-- name: insert_attributes
insert into pgqrs_run_attributes (name, value, run_id)
select given.name, given.value, given.run_id
from {rows given: name text, value text, run_id id}
where true
order by given.position;

-- name: insert_run_messages
insert into pgqrs_messages (queue_id, payload, run_id, priority, visible_after, enqueued_at, max_attempts)
select cast(:queue_id as bigint), cast('{"run_id": ' || given.id || '}' as {json}), given.id, cast(:priority as integer),
    coalesce(:run_at, {after :delay}), {now}, cast(:max_attempts as integer)
from {rows given: id id}
where true
order by given.position;

-- name: dead_letters_of_runs
-- Failed runs whose workflow has another one for that; a run that is itself such a dead letter gets none.
select r.run_id, w.name, d.workflow_id, d.queue_id, {text r.input}, {text r.error}, r.last_error, r.attempt, r.max_attempts
from pgqrs_workflow_runs as r
cross join pgqrs_workflows as w
cross join pgqrs_workflows as d
where r.run_id {in run_ids}
  and r.dead_letter_of is null
  and w.workflow_id = r.workflow_id
  and d.name = w.dead_letter
order by r.run_id;
