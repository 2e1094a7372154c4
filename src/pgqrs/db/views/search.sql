-- Runs by filter, newest first. One text per thing that can drive the search, each of them the ids of a range of one
-- index in the order of that index; what else the filter says is looked at row by row.

-- name: _match
cast(:statuses as text) like '%,' || r.status || ',%'
          and (cast(:any_workflow as integer) = 1 or r.workflow_id {in workflow_ids})
          and (cast(:deleted as integer) is null
               or case when r.deleted_at is null then 0 else 1 end = cast(:deleted as integer))
          and (cast(:created_after as {time}) is null or r.created_at >= cast(:created_after as {time}))
          and (cast(:created_before as {time}) is null or r.created_at < cast(:created_before as {time}))
          and (cast(:completed_after as {time}) is null or r.completed_at >= cast(:completed_after as {time}))
          and (cast(:completed_before as {time}) is null or r.completed_at < cast(:completed_before as {time}))
          and (cast(:error_signature as text) is null or r.error_signature = cast(:error_signature as text))
          and (cast(:parent_run_id as bigint) is null or r.parent_run_id = cast(:parent_run_id as bigint))
          and (cast(:idempotency_key as text) is null or r.idempotency_key = cast(:idempotency_key as text))
          and (cast(:worker_id as bigint) is null or r.worker_id = cast(:worker_id as bigint))
          and (cast(:waiting_for as text) is null or r.waiting_for = cast(:waiting_for as text))
          and (cast(:text as text) is null or {contains cast(:text as text) in r.last_error})
          and (cast(:any_attributes as integer) = 1 or not exists (
            select 1 from {rows attributes: name text, value text}
            where not exists (
                select 1 from pgqrs_run_attributes as a
                where a.name = attributes.name and a.value = attributes.value and a.run_id = r.run_id
            )
          ))

-- name: newest
select r.run_id from pgqrs_workflow_runs as r
        where r.run_id < :before
          and {include _match}
order by r.run_id desc
limit :most;

-- name: by_workflow
-- One range per status: the index is (workflow_id, status, run_id desc). A status that is not wanted is not looked at.
select run_id from (
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.workflow_id = :workflow_id and r.status = 'PENDING' and cast(:statuses as text) like '%,PENDING,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as pending
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.workflow_id = :workflow_id and r.status = 'RUNNING' and cast(:statuses as text) like '%,RUNNING,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as running
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.workflow_id = :workflow_id and r.status = 'PAUSED' and cast(:statuses as text) like '%,PAUSED,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as paused
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.workflow_id = :workflow_id and r.status = 'SUCCESS' and cast(:statuses as text) like '%,SUCCESS,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as success
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.workflow_id = :workflow_id and r.status = 'ERROR' and cast(:statuses as text) like '%,ERROR,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as error
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.workflow_id = :workflow_id and r.status = 'CANCELLED' and cast(:statuses as text) like '%,CANCELLED,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as cancelled
) as found
order by run_id desc
limit :most;

-- name: by_status
select run_id from (
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'PENDING' and cast(:statuses as text) like '%,PENDING,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as pending
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'RUNNING' and cast(:statuses as text) like '%,RUNNING,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as running
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'PAUSED' and cast(:statuses as text) like '%,PAUSED,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as paused
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'SUCCESS' and cast(:statuses as text) like '%,SUCCESS,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as success
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'ERROR' and cast(:statuses as text) like '%,ERROR,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as error
  union all
    select run_id from (
        select r.run_id from pgqrs_workflow_runs as r
        where r.status = 'CANCELLED' and cast(:statuses as text) like '%,CANCELLED,%' and r.run_id < :before
          and {include _match}
        order by r.run_id desc limit :most
    ) as cancelled
) as found
order by run_id desc
limit :most;

-- name: by_error
-- Those that have failed at least once, or were cancelled for a reason.
select r.run_id from pgqrs_workflow_runs as r
where r.last_error is not null and r.run_id < :before
          and {include _match}
order by r.run_id desc
limit :most;

-- name: by_attribute
select r.run_id
from pgqrs_run_attributes as d
cross join pgqrs_workflow_runs as r
where d.name = :name and d.value = :value and d.run_id < :before and r.run_id = d.run_id
          and {include _match}
order by d.run_id desc
limit :most;

-- name: by_signature
select r.run_id from pgqrs_workflow_runs as r
where r.error_signature = :error_signature and r.error_signature is not null and r.run_id < :before
          and {include _match}
order by r.run_id desc
limit :most;

-- name: by_parent
select r.run_id from pgqrs_workflow_runs as r
where r.parent_run_id = :parent_run_id and r.parent_run_id is not null and r.run_id < :before
          and {include _match}
order by r.run_id desc
limit :most;

-- name: by_key
-- Deleted runs have given up their keys.
select r.run_id from pgqrs_workflow_runs as r
where r.idempotency_key = :idempotency_key and r.idempotency_key is not null and r.deleted_at is null
          and r.run_id + 0 < :before
          and {include _match}
limit :most;

-- name: by_deletion
-- Not many: retention takes them away. (`+ 0`, here and below: SQLite would walk all runs, as it wants them in this order.)
select r.run_id from pgqrs_workflow_runs as r
-- The index begins with the workflow.
where r.workflow_id in (select w.workflow_id from pgqrs_workflows as w)
          and r.deleted_at >= :ever and r.deleted_at is not null
          and r.run_id + 0 < :before
          and {include _match}
order by r.run_id + 0 desc
limit :most;

-- name: by_end
-- Those that ended so in a window, sorted: only for windows that `count_ended` finds small.
select r.run_id from pgqrs_workflow_runs as r
where r.workflow_id {in ended_of} and r.status = :ended_as
          and r.completed_at >= :ended_from and r.completed_at < :ended_to and r.completed_at is not null
          and r.run_id + 0 < :before
          and {include _match}
order by r.run_id + 0 desc
limit :most;

-- name: count_ended
select count(*) from (
    select 1 as one from pgqrs_workflow_runs as r
    where r.workflow_id {in ended_of} and r.status = :ended_as
      and r.completed_at >= :ended_from and r.completed_at < :ended_to and r.completed_at is not null
    limit :most
) as found;

-- name: count_attribute
select count(*) from (
    select 1 as one from pgqrs_run_attributes as a
    where a.name = :name and a.value = :value
    limit :most
) as found;

-- name: summaries
-- Without input, output and error: those may be large, and nobody reads them in a list.
select r.run_id, w.name, r.status, substr(r.last_error, 1, :cut) as last_error, r.error_signature, r.created_at, r.started_at,
    r.paused_at, r.completed_at, r.updated_at, r.worker_id, r.attempt, r.max_attempts, r.priority, r.idempotency_key,
    r.parent_run_id, r.dead_letter_of, substr(r.waiting_for, 1, :cut) as waiting_for, r.deleted_at,
    substr(r.delete_reason, 1, :cut) as delete_reason, substr({text r.attributes}, 1, :cut) as attributes,
    substr({text r.headers}, 1, :cut) as headers
from pgqrs_workflow_runs as r
cross join pgqrs_workflows as w
where r.run_id {in run_ids} and w.workflow_id = r.workflow_id
order by r.run_id desc;

-- name: newest_run_id
select max(run_id) from pgqrs_workflow_runs;

-- name: clock
select {now} as now_at;

-- name: failures_in_window
-- What the failures of a window have in common, for as many as :most of them; by buckets of :width seconds, for a picture
-- of their number over time. (round, as not every database has floor; the 0.499999 makes it one.)
select workflow_id, error_signature, round(since / :width - 0.499999) as bucket, count(*) as failed_runs,
    min(completed_at) as first_at, max(completed_at) as last_at, max(run_id) as newest_run
from (
    select r.workflow_id, r.error_signature, r.completed_at, r.run_id,
        {seconds r.completed_at since cast(:ended_from as {time})} as since
    from pgqrs_workflow_runs as r
    where r.workflow_id {in ended_of} and r.status = 'ERROR' and r.completed_at >= :ended_from
      and r.completed_at is not null and r.deleted_at is null
    limit :most
) as failed
group by 1, 2, 3;

-- name: newest_failures
-- The same for the newest, where the window holds more than can be grouped at once.
select workflow_id, error_signature, round(since / :width - 0.499999) as bucket, count(*) as failed_runs,
    min(completed_at) as first_at, max(completed_at) as last_at, max(run_id) as newest_run
from (
    select r.workflow_id, r.error_signature, r.completed_at, r.run_id,
        {seconds r.completed_at since cast(:ended_from as {time})} as since
    from pgqrs_workflow_runs as r
    where r.status = 'ERROR' and r.run_id < :before and r.completed_at >= :ended_from and r.deleted_at is null
    order by r.run_id desc
    limit :most
) as failed
group by 1, 2, 3;
