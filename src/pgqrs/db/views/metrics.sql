-- What a store is doing. Every count is capped, and reads an index only: a million ended runs cost nothing.

-- name: runs_by_status
select 'PENDING', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.status = 'PENDING'
    limit :most
) as pending
union all
select 'RUNNING', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.status = 'RUNNING'
    limit :most
) as running
union all
select 'PAUSED', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.status = 'PAUSED'
    limit :most
) as paused
union all
select 'SUCCESS', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.status = 'SUCCESS'
    limit :most
) as success
union all
select 'ERROR', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.status = 'ERROR'
    limit :most
) as error
union all
select 'CANCELLED', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.status = 'CANCELLED'
    limit :most
) as cancelled;

-- name: runs_of_workflow_by_status
select 'PENDING', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.workflow_id = :workflow_id and r.status = 'PENDING'
    limit :most
) as pending
union all
select 'RUNNING', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.workflow_id = :workflow_id and r.status = 'RUNNING'
    limit :most
) as running
union all
select 'PAUSED', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.workflow_id = :workflow_id and r.status = 'PAUSED'
    limit :most
) as paused
union all
select 'SUCCESS', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.workflow_id = :workflow_id and r.status = 'SUCCESS'
    limit :most
) as success
union all
select 'ERROR', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.workflow_id = :workflow_id and r.status = 'ERROR'
    limit :most
) as error
union all
select 'CANCELLED', count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.workflow_id = :workflow_id and r.status = 'CANCELLED'
    limit :most
) as cancelled;

-- name: ended_sample
-- How the newest runs of the window went: seconds at work, and seconds before that.
select status, duration, waited
from (
    select status, duration, waited, completed_at from (
        select r.status, {seconds r.completed_at since r.started_at} as duration,
            {seconds r.started_at since r.created_at} as waited, r.completed_at
        from pgqrs_workflow_runs as r
        where r.workflow_id = :workflow_id and r.status = 'SUCCESS'
          and r.completed_at >= {after -:window} and r.completed_at is not null
        order by r.completed_at desc
        limit :most
    ) as success
  union all
    select status, duration, waited, completed_at from (
        select r.status, {seconds r.completed_at since r.started_at} as duration,
            {seconds r.started_at since r.created_at} as waited, r.completed_at
        from pgqrs_workflow_runs as r
        where r.workflow_id = :workflow_id and r.status = 'ERROR'
          and r.completed_at >= {after -:window} and r.completed_at is not null
        order by r.completed_at desc
        limit :most
    ) as error
) as ended
order by completed_at desc
limit :most;

-- name: queue_depths
-- One row per queue and priority: ready, later, later but leased, how long the oldest ready one has been waiting. The
-- priorities are found one by one, by looks into the index, so that each count is one range of it.
with recursive
levels (queue_id, priority) as (
    select q.queue_id, (
        select m.priority from pgqrs_messages as m
        where m.queue_id = q.queue_id and m.attempts < m.max_attempts
        order by m.priority desc limit 1
    )
    from pgqrs_queues as q
    where q.queue_id {in queue_ids}
  union all
    select levels.queue_id, (
        select m.priority from pgqrs_messages as m
        where m.queue_id = levels.queue_id and m.attempts < m.max_attempts and m.priority < levels.priority
        order by m.priority desc limit 1
    )
    from levels
    where levels.priority is not null
)
select
    level.queue_id,
    (
        select count(*) from (
            select 1 as one from pgqrs_messages as m
            where m.queue_id = level.queue_id and m.priority = level.priority and m.attempts < m.max_attempts
              and m.visible_after <= {now}
            limit :most
        ) as ready
    ),
    (
        select count(*) from (
            select 1 as one from pgqrs_messages as m
            where m.queue_id = level.queue_id and m.priority = level.priority and m.attempts < m.max_attempts
              and m.visible_after > {now}
            limit :most
        ) as later
    ),
    (
        select count(leased_by) from (
            select m.leased_by from pgqrs_messages as m
            where m.queue_id = level.queue_id and m.priority = level.priority and m.attempts < m.max_attempts
              and m.visible_after > {now}
            order by m.visible_after
            limit :most
        ) as leased
    ),
    (
        select {seconds {now} since m.visible_after} from pgqrs_messages as m
        where m.queue_id = level.queue_id and m.priority = level.priority and m.attempts < m.max_attempts
        order by m.visible_after
        limit 1
    )
from (
    select levels.queue_id, levels.priority from levels
    where levels.priority is not null
    limit :levels
) as level;

-- name: exhausted_depths
-- What has been read as often as it may be: dead, still in its last lease, or put off.
select
    q.queue_id,
    (
        select count(*) from (
            select 1 as one from pgqrs_messages as m
            where m.queue_id = q.queue_id and m.attempts >= m.max_attempts and m.visible_after <= {now}
            limit :most
        ) as dead
    ),
    (
        select count(*) from (
            select 1 as one from pgqrs_messages as m
            where m.queue_id = q.queue_id and m.attempts >= m.max_attempts and m.visible_after > {now}
            limit :most
        ) as later
    ),
    (
        select count(leased_by) from (
            select m.leased_by from pgqrs_messages as m
            where m.queue_id = q.queue_id and m.attempts >= m.max_attempts and m.visible_after > {now}
            order by m.visible_after
            limit :most
        ) as leased
    )
from pgqrs_queues as q
where q.queue_id {in queue_ids};

-- name: live_runs_by_workflow
select w.name,
    (select count(*) from (
        select 1 as one from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'PENDING' limit :most
    ) as pending),
    (select count(*) from (
        select 1 as one from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'RUNNING' limit :most
    ) as running),
    (select count(*) from (
        select 1 as one from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'PAUSED' limit :most
    ) as paused)
from pgqrs_workflows as w
where {by w.name} > :after
order by {by w.name}
limit :workflows;

-- name: workers_by_health
-- Ready, stale (no sign of life for :within seconds), stopped.
select
    count(case when status = 'READY' and heartbeat_at > {after -:within} then 1 end),
    count(case when status = 'READY' and heartbeat_at <= {after -:within} then 1 end),
    count(case when status = 'STOPPED' then 1 end)
from pgqrs_workers;

-- name: workers_by_queue
-- Ready and stale, as above, of each queue; without a name those that serve several. Who said goodbye is not read.
select
    q.name,
    count(case when w.heartbeat_at > {after -:within} then 1 end),
    count(case when w.heartbeat_at <= {after -:within} then 1 end)
from pgqrs_queues as q
cross join pgqrs_workers as w
where w.queue_id = q.queue_id and w.status = 'READY'
group by q.name
union all
select
    null,
    count(case when heartbeat_at > {after -:within} then 1 end),
    count(case when heartbeat_at <= {after -:within} then 1 end)
from pgqrs_workers
where queue_id is null and status = 'READY';

-- name: outbox_counts
select
    (select count(*) from (
        select 1 as one from pgqrs_outbox_events where published_at is null and dead_at is null limit :most
    ) as unpublished),
    (select count(*) from (
        select 1 as one from pgqrs_outbox_events where dead_at is not null limit :most
    ) as dead);

-- name: schedule_counts
select count(*), count(paused_at), min(case when paused_at is null then next_slot_at end) as next_slot_at
from pgqrs_schedules;

-- name: database_bytes
-- Asked of the database only where there is no file to look at.
select null;
