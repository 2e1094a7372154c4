-- Workflow by workflow and in the order of the index: else PostgreSQL, while it has no statistics, walks whatever ended so.

-- name: ended_per_bucket
select round(ago / :width - 0.499999), status, count(*)
from unnest(:ended_of::bigint[]) as w (workflow_id)
cross join lateral (
    (
        select {seconds {now} since r.completed_at} as ago, r.status
        from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'SUCCESS'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
        order by r.completed_at desc
        limit :most
    )
  union all
    (
        select {seconds {now} since r.completed_at} as ago, r.status
        from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'ERROR'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
        order by r.completed_at desc
        limit :most
    )
  union all
    (
        select {seconds {now} since r.completed_at} as ago, r.status
        from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'CANCELLED'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
        order by r.completed_at desc
        limit :most
    )
    limit :most
) as ended
group by 1, 2;

-- name: durations_sampled
select ago, seconds
from unnest(:ended_of::bigint[]) as w (workflow_id)
cross join lateral (
    (
        select {seconds {now} since r.completed_at} as ago, {seconds r.completed_at since r.started_at} as seconds
        from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'SUCCESS'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
          and r.run_id % cast(:every as bigint) = 0
        order by r.completed_at desc
        limit :most
    )
  union all
    (
        select {seconds {now} since r.completed_at} as ago, {seconds r.completed_at since r.started_at} as seconds
        from pgqrs_workflow_runs as r
        where r.workflow_id = w.workflow_id and r.status = 'ERROR'
          and r.completed_at > {after -:window} and r.completed_at <= {now} and r.completed_at is not null
          and r.run_id % cast(:every as bigint) = 0
        order by r.completed_at desc
        limit :most
    )
) as ended
limit :most;
