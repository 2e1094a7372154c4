-- What has changed since the last look, for whoever watches. Each part reads the end of an index and no more than :most
-- entries of it, so that a look costs the same however much there is.

-- name: pulse
-- One row; every number in it stands still while nothing of its kind happens. In the order of changes.Pulse.
select
    -- runs: the newest, those that have not ended, when the last one ended
    (select r.run_id from pgqrs_workflow_runs as r order by r.run_id desc limit 1),
    (select sum(pending.run_id) from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'PENDING' order by r.run_id desc limit :most
    ) as pending),
    (select sum(running.run_id) from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'RUNNING' order by r.run_id desc limit :most
    ) as running),
    (select sum(paused.run_id) from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'PAUSED' order by r.run_id desc limit :most
    ) as paused),
    (select max(ended.latest) from (
        select (
            select r.completed_at from pgqrs_workflow_runs as r
            where r.workflow_id = w.workflow_id and r.status = 'SUCCESS' and r.completed_at is not null
            order by r.completed_at desc limit 1
        ) as latest
        from (select workflow_id from pgqrs_workflows order by workflow_id desc limit :most) as w
    ) as ended),
    (select max(ended.latest) from (
        select (
            select r.completed_at from pgqrs_workflow_runs as r
            where r.workflow_id = w.workflow_id and r.status = 'ERROR' and r.completed_at is not null
            order by r.completed_at desc limit 1
        ) as latest
        from (select workflow_id from pgqrs_workflows order by workflow_id desc limit :most) as w
    ) as ended),
    (select max(ended.latest) from (
        select (
            select r.completed_at from pgqrs_workflow_runs as r
            where r.workflow_id = w.workflow_id and r.status = 'CANCELLED' and r.completed_at is not null
            order by r.completed_at desc limit 1
        ) as latest
        from (select workflow_id from pgqrs_workflows order by workflow_id desc limit :most) as w
    ) as ended),
    -- queues: the newest message, when the last one was archived, how many queues there are and are paused
    (select m.message_id from pgqrs_messages as m order by m.message_id desc limit 1),
    (select max(archived.latest) from (
        select (
            select a.archived_at from pgqrs_archived_messages as a
            where a.queue_id = q.queue_id
            order by a.archived_at desc limit 1
        ) as latest
        from (select queue_id from pgqrs_queues order by queue_id desc limit :most) as q
    ) as archived),
    (select count(*) from pgqrs_queues),
    (select count(paused_at) from pgqrs_queues),
    -- workers: the newest, and how many have stopped
    (select w.worker_id from pgqrs_workers as w order by w.worker_id desc limit 1),
    (select count(w.stopped_at) from (
        select stopped_at from pgqrs_workers order by worker_id desc limit :most
    ) as w),
    -- the outbox: the newest event, and how the newest ones fare
    (select e.event_id from pgqrs_outbox_events as e order by e.event_id desc limit 1),
    (select count(e.published_at) from (
        select published_at from pgqrs_outbox_events order by event_id desc limit :most
    ) as e),
    (select count(e.dead_at) from (
        select dead_at from pgqrs_outbox_events order by event_id desc limit :most
    ) as e),
    (select sum(e.attempts) from (
        select attempts from pgqrs_outbox_events order by event_id desc limit :most
    ) as e),
    -- schedules
    (select count(*) from pgqrs_schedules),
    (select count(paused_at) from pgqrs_schedules),
    (select max(updated_at) from pgqrs_schedules),
    (select max(last_slot_at) from pgqrs_schedules),
    (select max(last_run_id) from pgqrs_schedules);

-- name: newest_event
select event_id from pgqrs_workflow_events
order by event_id desc
limit 1;

-- name: events_after
-- What happened to whom.
select event_id, run_id from pgqrs_workflow_events
where event_id > :after
order by event_id
limit :most;

-- name: runs_after
select run_id from pgqrs_workflow_runs
where run_id > :after
order by run_id
limit :most;

-- name: runs_at_work
-- The newest of them, with how far they are.
select r.run_id, r.updated_at, {text r.headers}, (
    select count(*) from (
        select 1 as one from pgqrs_workflow_steps as s
        where s.run_id = r.run_id
        limit :most_steps
    ) as done
)
from (
    select run_id, updated_at, headers from pgqrs_workflow_runs
    where status = 'RUNNING'
    order by run_id desc
    limit :most
) as r;
