-- name: insert_events
insert into pgqrs_workflow_events (run_id, event_type, data, actor, created_at)
select given.run_id, given.event_type, given.data, given.actor, {now}
from {rows given: run_id id, event_type text, data json, actor text}
where true
order by given.position;

-- name: insert_outbox
-- Under the lock of each run, so that the ids of one run's events grow in the order in which they were committed.
insert into pgqrs_outbox_events (event_uuid, aggregate_id, workflow, event_type, payload, created_at, visible_after)
select given.uuid, given.run_id, w.name, given.event_type, given.payload, {now}, {now}
from {rows given: uuid text, run_id id, event_type text, payload json}
cross join pgqrs_workflow_runs as r
cross join pgqrs_workflows as w
where r.run_id = given.run_id
  and w.workflow_id = r.workflow_id
order by given.position;

-- name: list_events
select event_id, run_id, event_type, substr({text data}, 1, :cut), actor, created_at
from pgqrs_workflow_events
where run_id = :run_id
  and event_id > :after
order by event_id
limit :most;
