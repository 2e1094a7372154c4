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

-- name: first_of_given
select s.run_id, min(s.sequence)
from pgqrs_workflow_steps as s
join {rows given: run_id id, step_id text} on given.run_id = s.run_id and given.step_id = s.step_id
where s.sequence is not null
group by s.run_id;

-- name: lose_places_behind
-- A wait that has not ended has no number: it may have begun because of the failure.
update pgqrs_workflow_steps
set ordinal = -1
from {rows given: id id, number int}
where run_id = given.id
  and ordinal >= 0
  and (sequence > given.number or (sequence is null and status = 'PAUSED'));
