-- name: _run
r.run_id, w.name, r.status, {text r.input}, {text r.output}, {text r.error}, r.last_error, r.created_at, r.started_at,
    r.paused_at, r.completed_at, r.updated_at, r.worker_id, r.attempt, r.max_attempts, r.priority, r.idempotency_key,
    r.parent_run_id, r.waiting_for, {text r.attributes}, r.deleted_at, r.delete_reason, r.error_signature, r.dead_letter_of,
    {text r.headers}

-- name: get_run
select {include _run}
from pgqrs_workflow_runs as r
join pgqrs_workflows as w on w.workflow_id = r.workflow_id
where r.run_id = :run_id;

-- name: workflow_of_run
select w.name
from pgqrs_workflow_runs as r
join pgqrs_workflows as w on w.workflow_id = r.workflow_id
where r.run_id = :run_id;

-- name: get_runs
select {include _run}
from pgqrs_workflow_runs as r
cross join pgqrs_workflows as w
where r.run_id {in run_ids} and w.workflow_id = r.workflow_id
order by r.run_id desc;

-- name: finished_runs
-- Which of the given have come to an end, or are gone.
select given.id
from {rows given: id id}
left join pgqrs_workflow_runs as r on r.run_id = given.id
where r.run_id is null
   or r.deleted_at is not null
   or r.status in ('SUCCESS', 'ERROR', 'CANCELLED');

-- name: list_steps
select step_id, ordinal, status, {text input}, {text output}, {text error}, attempts, started_at, completed_at,
    sequence
from pgqrs_workflow_steps
where run_id = :run_id
order by coalesce(completed_at, started_at), ordinal, {by step_id};

-- name: steps_page
-- The same from a place on, each value cut. The page is chosen first: sorting must not carry values along.
with page as (
    select run_id, step_id, coalesce(completed_at, started_at, :ever) as at_time, ordinal
    from pgqrs_workflow_steps
    where run_id = :run_id
      and (
        cast(:is_first as integer) = 1
        or (coalesce(completed_at, started_at, :ever), cast(ordinal as integer), {by step_id})
            > (:after_time, :after_ordinal, :after_step)
      )
    order by coalesce(completed_at, started_at, :ever), cast(ordinal as integer), {by step_id}
    limit :most
)
select s.step_id, s.ordinal, s.status, substr({text s.input}, 1, :cut), substr({text s.output}, 1, :cut),
    substr({text s.error}, 1, :cut), s.attempts, s.started_at, s.completed_at, s.sequence
from page
cross join pgqrs_workflow_steps as s
where s.run_id = page.run_id and s.step_id = page.step_id
order by page.at_time, page.ordinal, {by page.step_id};

-- name: step_sizes
-- How many characters the values of each step have, from a place on.
select step_id, ordinal, coalesce(completed_at, started_at, :ever),
    coalesce(length({text input}), 0) + coalesce(length({text output}), 0) + coalesce(length({text error}), 0)
from pgqrs_workflow_steps
where run_id = :run_id
  and (
    cast(:is_first as integer) = 1
    or (coalesce(completed_at, started_at, :ever), cast(ordinal as integer), {by step_id})
        > (:after_time, :after_ordinal, :after_step)
  )
order by coalesce(completed_at, started_at, :ever), cast(ordinal as integer), {by step_id}
limit :most;

-- name: steps_named
-- Those of the given that are there, in the order given.
select s.step_id, s.ordinal, s.status, {text s.input}, {text s.output}, {text s.error}, s.attempts, s.started_at,
    s.completed_at, s.sequence
from {rows given: step_id text}
cross join pgqrs_workflow_steps as s
where s.run_id = :run_id and s.step_id = given.step_id
order by given.position;

-- name: steps_of_runs
select run_id, step_id, ordinal, status, {text output}, {text error}, attempts, {text input}, sequence
from pgqrs_workflow_steps
where run_id {in run_ids};

-- name: steps_in_brief
-- How far many runs are, without what their steps returned: that may be large.
select run_id, step_id, status, attempts, {text error}
from pgqrs_workflow_steps
where run_id {in run_ids}
order by run_id, coalesce(completed_at, started_at), ordinal, {by step_id};
