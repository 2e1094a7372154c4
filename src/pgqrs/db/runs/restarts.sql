-- name: lock_runs
-- In the order in which everybody locks several runs.
select r.run_id, r.status, {text r.error}, r.last_error
from pgqrs_workflow_runs as r
where r.run_id {in run_ids}
  and r.deleted_at is null
order by r.run_id
{lock r};

-- name: telling_steps
-- What has not succeeded, and the steps about children. Of a child's result only its beginning: that tells how it ended.
select s.run_id, s.step_id, s.status,
    case when s.step_id like 'spawn%' then {text s.output} else substr({text s.output}, 1, 16) end
from pgqrs_workflow_steps as s
where s.run_id {in run_ids}
  and (s.status <> 'SUCCESS' or s.step_id like 'result:%' or s.step_id like 'spawn%');

-- name: children_given
select r.run_id, r.parent_run_id, r.status, r.deleted_at
from pgqrs_workflow_runs as r
where r.run_id {in run_ids}
  and r.parent_run_id is not null;

-- name: failed_children
select c.run_id, c.parent_run_id
from pgqrs_workflow_runs as c
where c.parent_run_id {in run_ids}
  and c.parent_run_id is not null
  and c.status in ('ERROR', 'CANCELLED')
  and c.deleted_at is null;

-- name: delete_given_steps
delete from pgqrs_workflow_steps
where (run_id, step_id) in (
    select given.run_id, given.step_id
    from {rows given: run_id id, step_id text}
);
