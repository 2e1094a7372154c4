-- What pages show of runs beside their rows: how far they are, when they are due, what they wait for. Of a page of runs
-- at a time, and never a value larger than a page can show.

-- name: steps_so_far
-- Done, failed, open; each counted up to a point.
select
    r.run_id,
    (select count(*) from (
        select 1 as one from pgqrs_workflow_steps as s where s.run_id = r.run_id and s.status = 'SUCCESS' limit :most
    ) as done),
    (select count(*) from (
        select 1 as one from pgqrs_workflow_steps as s where s.run_id = r.run_id and s.status = 'ERROR' limit :most
    ) as failed),
    (select count(*) from (
        select 1 as one from pgqrs_workflow_steps as s
        where s.run_id = r.run_id and s.status in ('PENDING', 'RUNNING', 'PAUSED') limit :most
    ) as open)
from pgqrs_workflow_runs as r
where r.run_id {in run_ids};

-- name: steps_of_last_success
-- How many steps the newest run that succeeded had: about as many as the next one will.
select w.name, (
    select count(*) from (
        select 1 as one from pgqrs_workflow_steps as s
        where s.run_id = (
            select r.run_id from pgqrs_workflow_runs as r
            where r.workflow_id = w.workflow_id and r.status = 'SUCCESS'
            order by r.run_id desc limit 1
        )
        limit :most
    ) as steps
)
from {rows given: name text}
cross join pgqrs_workflows as w
where w.name = given.name;

-- name: due
-- Of those that have not ended: the seconds until they may be taken, and who holds them.
select m.run_id, {seconds m.visible_after since {now}}, h.hostname
from pgqrs_messages as m
left join pgqrs_workers as h on h.worker_id = m.leased_by
where m.run_id {in run_ids} and m.run_id is not null;

-- name: open_waits
-- What runs wait for by themselves: sleeps, signals, people, children.
select s.run_id, s.step_id, {text s.output}, s.started_at
from pgqrs_workflow_steps as s
where s.run_id {in run_ids} and s.status = 'PAUSED'
order by s.run_id desc, s.ordinal
limit :most;

-- name: timeline
-- A run's steps without their values, in the order in which they began.
select step_id, ordinal, status, attempts, started_at, completed_at
from pgqrs_workflow_steps
where run_id = :run_id
  and (
    cast(:is_first as integer) = 1
    or (coalesce(started_at, :ever), cast(ordinal as integer), {by step_id}) > (:after_time, :after_ordinal, :after_step)
  )
order by coalesce(started_at, :ever), cast(ordinal as integer), {by step_id}
limit :most;

-- name: steps_of_many
-- The same of many runs at once: what a grid and its percentiles are made of.
select run_id, step_id, status, attempts, ordinal, {seconds completed_at since started_at}
from pgqrs_workflow_steps
where run_id {in run_ids}
limit :most;

-- name: step
-- One of them with its values, each cut, and how long they are.
select
    step_id,
    ordinal,
    status,
    attempts,
    started_at,
    completed_at,
    substr({text input}, 1, :cut),
    length({text input}),
    substr({text output}, 1, :cut),
    length({text output}),
    substr({text error}, 1, :cut),
    length({text error})
from pgqrs_workflow_steps
where run_id = :run_id and step_id = :step_id;

-- name: step_input
-- A part of one value: downloads are read piece by piece.
select substr({text input}, :start, :most) from pgqrs_workflow_steps where run_id = :run_id and step_id = :step_id;

-- name: step_output
select substr({text output}, :start, :most) from pgqrs_workflow_steps where run_id = :run_id and step_id = :step_id;

-- name: step_error
select substr({text error}, :start, :most) from pgqrs_workflow_steps where run_id = :run_id and step_id = :step_id;

-- name: failed_attempts
-- When which step failed, for the attempts that a step itself no longer tells of.
select event_id, substr({text data}, 1, :cut), created_at
from pgqrs_workflow_events
where run_id = :run_id and event_type = 'step_failed'
order by event_id desc
limit :most;

-- name: holder_of
select w.hostname from pgqrs_workers as w where w.worker_id = :worker_id;

-- name: next_messages
-- What is taken next from a queue, in that order: the head of the index.
select m.message_id, m.run_id, m.priority, m.enqueued_at, m.attempts, m.max_attempts, h.hostname,
    {seconds m.visible_after since {now}}, substr({text m.payload}, 1, :cut)
from pgqrs_messages as m
left join pgqrs_workers as h on h.worker_id = m.leased_by
where m.queue_id = :queue_id and m.attempts < m.max_attempts
order by m.priority desc, m.visible_after, m.message_id
limit :most;

-- name: workers_shown
-- Those that are there first, the liveliest first.
select w.worker_id, q.name, substr(w.hostname, 1, :cut), w.port, w.status, w.created_at, w.heartbeat_at, w.stopped_at,
    {seconds {now} since w.heartbeat_at}, case when length({text w.info}) <= :cut then {text w.info} end
from pgqrs_workers as w
left join pgqrs_queues as q on q.queue_id = w.queue_id
order by case when w.status = 'READY' then 0 else 1 end, w.heartbeat_at desc
limit :most;

-- name: held_by_workers
-- How much each holds. Leases are among what becomes visible soon: found by the index that leases are taken from.
with recursive
levels (queue_id, priority) as (
    select q.queue_id, (
        select m.priority from pgqrs_messages as m
        where m.queue_id = q.queue_id and m.attempts < m.max_attempts
        order by m.priority desc limit 1
    )
    from pgqrs_queues as q
  union all
    select levels.queue_id, (
        select m.priority from pgqrs_messages as m
        where m.queue_id = levels.queue_id and m.attempts < m.max_attempts and m.priority < levels.priority
        order by m.priority desc limit 1
    )
    from levels
    where levels.priority is not null
)
select leased_by, count(*)
from (
    select m.leased_by
    from levels
    cross join pgqrs_messages as m
    where m.queue_id = levels.queue_id
      and m.priority = levels.priority
      and m.attempts < m.max_attempts
      and m.visible_after > {now}
      and m.visible_after <= {after :within}
      and m.leased_by is not null
    limit :most
) as held
group by leased_by;

-- name: held_in_last_attempts
select leased_by, count(*)
from (
    select m.leased_by
    from pgqrs_queues as q
    cross join pgqrs_messages as m
    where m.queue_id = q.queue_id
      and m.attempts >= m.max_attempts
      and m.visible_after > {now}
      and m.visible_after <= {after :within}
      and m.leased_by is not null
    limit :most
) as held
group by leased_by;
