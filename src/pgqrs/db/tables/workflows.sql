-- name: create_workflow
insert into pgqrs_workflows (name, queue_id, created_at)
select :name, q.queue_id, {now}
from pgqrs_queues as q
where q.name = :name
on conflict (name) do nothing;

-- name: get_workflow
select workflow_id, name, queue_id, created_at, paused_at, {text input_schema}
from pgqrs_workflows
where name = :name;

-- name: list_workflows
select workflow_id, name, queue_id, created_at, paused_at
from pgqrs_workflows
order by {by name};

-- name: workflows_page
select workflow_id, name, queue_id, created_at, paused_at
from pgqrs_workflows
where {by name} > :after
order by {by name}
limit :most;

-- name: workflows_of_queues
select name from pgqrs_workflows
where queue_id {in queue_ids};

-- name: workflows_with_prefixes
-- Compared character by character: `_` and `%` mean themselves.
select workflow_id, name, queue_id, created_at, paused_at
from pgqrs_workflows
where exists (
    select 1 from {rows given: prefix text}
    where substr(pgqrs_workflows.name, 1, length(given.prefix)) = given.prefix
)
order by {by name};

-- name: set_dead_letter
update pgqrs_workflows
set dead_letter = :dead_letter
where name = :name;

-- name: live_workers
-- What those that gave a sign of life in the last :within seconds say they serve; null for one that serves this queue.
select case when queue_id is null then {text info} end
from pgqrs_workers
where status = 'READY'
  and (queue_id = :queue_id or queue_id is null)
  and heartbeat_at > {after -:within};

-- name: set_input_schema
-- Written only when it says something else.
update pgqrs_workflows
set input_schema = {as_json :schema}
where name = :name
  and (input_schema is null or {text input_schema} <> cast(:schema as text));

-- name: get_input_schema
select {text input_schema} from pgqrs_workflows
where name = :name;
