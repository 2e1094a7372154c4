-- name: old_executions
-- The former layout: one row per execution. `old_workflows` stands for its table.
select cast(workflow_id as text), name, cast(status as text), {text input}, {text output}, {text error},
    cast(created_at as text), cast(updated_at as text)
from old_workflows
where cast(workflow_id as text) > :after
order by cast(workflow_id as text)
limit :most;

-- name: old_steps
select cast(workflow_id as text), step_id, cast(status as text), {text input}, {text output}, {text error},
    cast(started_at as text), cast(completed_at as text)
from old_steps
where cast(workflow_id as text) >= :first and cast(workflow_id as text) <= :last
order by cast(workflow_id as text), started_at;

-- name: import_runs
-- The key keeps an execution from being copied twice.
insert into pgqrs_workflow_runs
    (workflow_id, status, input, output, error, created_at, updated_at, completed_at, max_attempts, idempotency_key)
select given.workflow_id, given.status, given.input, given.output, given.error, given.created_at, given.updated_at,
    given.completed_at, given.max_attempts, given.key
from {rows given: workflow_id id, status text, input json, output json, error json, created_at time, updated_at time, completed_at time, max_attempts int, key text}
where true
order by given.position
on conflict (idempotency_key) where idempotency_key is not null and deleted_at is null do nothing
returning run_id, idempotency_key, status;

-- name: import_steps
insert into pgqrs_workflow_steps (run_id, step_id, ordinal, status, input, output, error, attempts, started_at, completed_at)
select given.run_id, given.step_id, given.ordinal, given.status, given.input, given.output, given.error, 1,
    given.started_at, given.completed_at
from {rows given: run_id id, step_id text, ordinal int, status text, input json, output json, error json, started_at time, completed_at time}
where true
order by given.position;
