-- What decides whether a run can move, as of now.

-- name: facts_of_run
select
    r.run_id,
    w.name,
    r.status,
    r.waiting_for,
    r.last_error,
    r.paused_at,
    r.completed_at,
    r.deleted_at,
    r.attempt,
    q.queue_id,
    q.name,
    q.paused_at,
    m.message_id,
    m.visible_after,
    {seconds m.visible_after since {now}} as visible_in_seconds,
    m.leased_by,
    m.attempts,
    m.max_attempts,
    m.priority,
    h.hostname,
    {seconds {now} since h.heartbeat_at} as holder_silent_seconds,
    {seconds {now} since coalesce(r.paused_at, r.updated_at)} as since_seconds,
    {text r.error}
from pgqrs_workflow_runs as r
join pgqrs_workflows as w on w.workflow_id = r.workflow_id
join pgqrs_queues as q on q.queue_id = w.queue_id
left join pgqrs_messages as m on m.run_id = r.run_id and m.run_id is not null
left join pgqrs_workers as h on h.worker_id = m.leased_by
where r.run_id = :run_id;

-- name: steps_under_way
select step_id, status, attempts, {text output}, {text error}
from pgqrs_workflow_steps
where run_id = :run_id and status <> 'SUCCESS'
order by ordinal
limit 20;

-- name: steps_completed_last
-- In the order in which `reset --from` takes them back.
select step_id
from pgqrs_workflow_steps
where run_id = :run_id and status = 'SUCCESS'
order by coalesce(completed_at, started_at) desc, ordinal desc
limit 20;

-- name: children_under_way
select c.run_id, w.name, c.status
from pgqrs_workflow_runs as c
join pgqrs_workflows as w on w.workflow_id = c.workflow_id
where c.parent_run_id = :run_id
  and c.status in ('PENDING', 'RUNNING', 'PAUSED')
  and c.deleted_at is null
order by c.run_id
limit 20;

-- name: children_that_failed
select c.run_id, w.name, c.status
from pgqrs_workflow_runs as c
join pgqrs_workflows as w on w.workflow_id = c.workflow_id
where c.parent_run_id = :run_id
  and c.status in ('ERROR', 'CANCELLED')
  and c.deleted_at is null
order by c.run_id
limit 20;

-- name: workers_that_are_there
-- Those that never said goodbye, the liveliest first.
select hostname, {seconds {now} since heartbeat_at}, {text info}
from pgqrs_workers
where status = 'READY'
order by heartbeat_at desc
limit 1000;

-- name: ready_before
-- How many are taken first; counted up to a point.
select count(*) from (
    select 1 as one
    from pgqrs_messages as m
    where m.queue_id = :queue_id
      and m.visible_after <= {now}
      and (m.priority > :priority or (m.priority = :priority and m.message_id < :message_id))
    limit 1000
) as before_it;
