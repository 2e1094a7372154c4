-- name: live_messages
-- What waits in a queue or is being worked on, oldest first; the messages of runs are not among it.
select message_id, {text payload}, priority, visible_after
from pgqrs_messages
where queue_id = :queue_id
  and run_id is null
order by message_id
limit :most;

-- name: signals_of_run
-- All that it was sent, oldest first, read or not.
select name, {text payload}, created_at, consumed_at, actor
from pgqrs_signals
where run_id = :run_id and signal_id {in ids}
order by signal_id;

-- name: signal_sizes
select signal_id, coalesce(length({text payload}), 0)
from pgqrs_signals
where run_id = :run_id and signal_id > :after
order by signal_id
limit :most;

-- name: emitted_events
-- What is in the outbox, published or not, oldest first.
select aggregate_id, event_type, {text payload}
from pgqrs_outbox_events
order by event_id
limit :most;

-- name: runs_by_workflow
-- How many there are of each, ended or not.
select w.name, count(*)
from pgqrs_workflow_runs as r
join pgqrs_workflows as w on w.workflow_id = r.workflow_id
group by w.name
order by {by w.name};

-- name: live_runs
-- The runs that a worker may lease, now or later, and how far each of them is. A step that only asks to be looked at
-- again (PAUSED) is no further for it.
select m.run_id, m.queue_id, m.visible_after, r.status, r.waiting_for, r.attempt,
    (select count(*) from pgqrs_workflow_steps as s where s.run_id = m.run_id and s.status in ('SUCCESS', 'ERROR')),
    (select coalesce(sum(s.attempts), 0) from pgqrs_workflow_steps as s
     where s.run_id = m.run_id and s.status <> 'PAUSED')
from pgqrs_messages as m
join pgqrs_queues as q on q.queue_id = m.queue_id
join pgqrs_workflow_runs as r on r.run_id = m.run_id
where m.attempts < m.max_attempts
  and q.paused_at is null
order by m.run_id;

-- name: drop_schema
-- With everything in it: for schemas that a test has made for itself.
drop schema if exists a_schema cascade;
