-- How a store does, minute by minute: what ended, and how long it took. Every text reads a range of one index, and not
-- more of it than it is told.

-- name: clock
select {now} as now_at;

-- name: ended_per_bucket
-- Bucket 0 is the newest. Only columns of the index: however much has ended, nothing else is read.
-- (round, as not every database has floor; the 0.499999 makes it one.)
select round(ago / :width - 0.499999), status, count(*)
from (
    select ago, status from (
        select {seconds {now} since r.completed_at} as ago, r.status
        from pgqrs_workflow_runs as r
        where r.workflow_id {in ended_of} and r.status = 'SUCCESS'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
        limit :most
    ) as success
  union all
    select ago, status from (
        select {seconds {now} since r.completed_at} as ago, r.status
        from pgqrs_workflow_runs as r
        where r.workflow_id {in ended_of} and r.status = 'ERROR'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
        limit :most
    ) as error
  union all
    select ago, status from (
        select {seconds {now} since r.completed_at} as ago, r.status
        from pgqrs_workflow_runs as r
        where r.workflow_id {in ended_of} and r.status = 'CANCELLED'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
        limit :most
    ) as cancelled
) as ended
group by 1, 2;

-- name: durations_sampled
-- Seconds at work of every :every-th run that ended in the window.
select ago, seconds
from (
    select ago, seconds from (
        select {seconds {now} since r.completed_at} as ago, {seconds r.completed_at since r.started_at} as seconds
        from pgqrs_workflow_runs as r
        where r.workflow_id {in ended_of} and r.status = 'SUCCESS'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
          and r.run_id % cast(:every as bigint) = 0
        limit :most
    ) as success
  union all
    select ago, seconds from (
        select {seconds {now} since r.completed_at} as ago, {seconds r.completed_at since r.started_at} as seconds
        from pgqrs_workflow_runs as r
        where r.workflow_id {in ended_of} and r.status = 'ERROR'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
          and r.run_id % cast(:every as bigint) = 0
        limit :most
    ) as error
) as ended;

-- name: workflows_at_a_glance
-- By name, a page at a time: what has not ended, what ended in the window and how, when one last did. (In the order of
-- the index, for PostgreSQL: else it takes another one.)
select
    w.name,
    q.paused_at,
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
    ) as paused),
    (select count(*) from (
        select 1 as one from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'SUCCESS'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
        order by r.completed_at desc
        limit :most
    ) as succeeded),
    (select count(*) from (
        select 1 as one from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'ERROR'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
        order by r.completed_at desc
        limit :most
    ) as failed),
    (
        select max(r.completed_at) from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'SUCCESS' and r.completed_at is not null
    ) as succeeded_at,
    (
        select max(r.completed_at) from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'ERROR' and r.completed_at is not null
    ) as failed_at
from pgqrs_workflows as w
join pgqrs_queues as q on q.queue_id = w.queue_id
where {by w.name} > :after
order by {by w.name}
limit :page;
