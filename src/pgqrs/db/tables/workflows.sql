-- name: create_workflow
insert into pgqrs_workflows (name, queue_id, created_at)
select :name, q.queue_id, {now}
from pgqrs_queues as q
where q.name = :name
on conflict (name) do nothing;

-- name: get_workflow
select workflow_id, name, queue_id, created_at, paused_at
from pgqrs_workflows
where name = :name;

-- name: list_workflows
select workflow_id, name, queue_id, created_at, paused_at
from pgqrs_workflows
order by name;

-- name: count_live_workers
-- Those that gave a sign of life in the last :within seconds.
select count(*)
from pgqrs_workers
where status = 'READY'
  and (queue_id = :queue_id or queue_id is null)
  and heartbeat_at > {after -:within};
