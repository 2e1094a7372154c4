-- name: _columns
s.schedule_id, s.name, s.workflow, s.kind, s.cron, s.interval_seconds, s.once_at, s.timezone, {text s.input},
    {text s.options}, s.overlap, s.catch_up, s.catch_up_limit, s.jitter_seconds, s.created_at, s.updated_at, s.paused_at,
    s.slots_after, s.last_slot_at, s.last_run_id, s.next_slot_at, s.last_error

-- name: _shown
s.schedule_id, s.name, s.workflow, s.kind, s.cron, s.interval_seconds, s.once_at, s.timezone,
    substr({text s.input}, 1, :cut), substr({text s.options}, 1, :cut), s.overlap, s.catch_up, s.catch_up_limit,
    s.jitter_seconds, s.created_at, s.updated_at, s.paused_at, s.slots_after, s.last_slot_at, s.last_run_id,
    s.next_slot_at, substr(s.last_error, 1, :cut)

-- name: insert_schedule
insert into pgqrs_schedules
    (name, workflow, kind, cron, interval_seconds, once_at, timezone, input, options, overlap, catch_up, catch_up_limit,
    jitter_seconds, created_at, updated_at, slots_after)
values (:name, :workflow, :kind, :cron, :interval_seconds, :once_at, :timezone, {as_json :input}, {as_json :options},
    :overlap, :catch_up, :catch_up_limit, :jitter_seconds, {now}, {now}, {now})
on conflict (name) do nothing;

-- name: lock_schedule
select {include _columns}, {now} as now_at
from pgqrs_schedules as s
where s.name = :name
{lock s};

-- name: redefine_schedule
update pgqrs_schedules
set workflow = :workflow,
    kind = :kind,
    cron = :cron,
    interval_seconds = :interval_seconds,
    once_at = :once_at,
    timezone = :timezone,
    input = {as_json :input},
    options = {as_json :options},
    overlap = :overlap,
    catch_up = :catch_up,
    catch_up_limit = :catch_up_limit,
    jitter_seconds = :jitter_seconds,
    updated_at = {now},
    slots_after = :slots_after,
    next_slot_at = :next_slot_at,
    last_error = null
where schedule_id = :schedule_id;

-- name: get_schedule
select {include _columns}, {now} as now_at
from pgqrs_schedules as s
where s.name = :name;

-- name: list_schedules
select {include _shown}
from pgqrs_schedules as s
where {by s.name} > :after
order by {by s.name}
limit :most;

-- name: schedule_names
select name from pgqrs_schedules;

-- name: pause_schedule
-- Keeps the time of the first pause.
update pgqrs_schedules
set paused_at = coalesce(paused_at, {now})
where name = :name;

-- name: resume_schedule
update pgqrs_schedules
set paused_at = null,
    slots_after = :slots_after,
    next_slot_at = :next_slot_at,
    last_error = null
where schedule_id = :schedule_id;

-- name: delete_slots
delete from pgqrs_schedule_slots
where schedule_id = :schedule_id;

-- name: delete_schedule
delete from pgqrs_schedules
where schedule_id = :schedule_id;

-- name: look
-- The first ones by time, due or not, with the seconds until then; and those that have queued slots, which are due when
-- the run before has ended. After an error the queue waits for the next try, too.
select first.schedule_id, first.seconds
from (
    select schedule_id, {seconds next_slot_at since {now}} as seconds
    from pgqrs_schedules
    where paused_at is null and next_slot_at is not null
    order by next_slot_at
    limit :most
) as first
union all
select s.schedule_id, case when r.run_id is null then 0.0 else 1.0 end
from (select distinct schedule_id from pgqrs_schedule_slots where state = 'queued') as q
join pgqrs_schedules as s on s.schedule_id = q.schedule_id
left join pgqrs_workflow_runs as r
    on r.run_id = s.last_run_id
    and r.status not in ('SUCCESS', 'ERROR', 'CANCELLED')
    and r.deleted_at is null
where s.paused_at is null
  and s.last_error is null;

-- name: lock_due
-- One who is due, unless somebody else is at it.
select {include _columns}, {now} as now_at
from pgqrs_schedules as s
where s.schedule_id = :schedule_id
  and s.paused_at is null
  and (
    s.next_slot_at <= {now}
    or exists (
        select 1 from pgqrs_schedule_slots as q
        where q.schedule_id = s.schedule_id and q.state = 'queued'
    )
  )
{skip_locked};

-- name: insert_slots
-- Only who inserts a slot may trigger it.
insert into pgqrs_schedule_slots (schedule_id, slot_at, state, created_at)
select cast(:schedule_id as bigint), given.slot_at, 'missed', {now}
from {rows given: slot_at time}
where true
order by given.position
on conflict (schedule_id, slot_at) do nothing
returning slot_at;

-- name: settle_slots
update pgqrs_schedule_slots
set state = given.state,
    run_id = given.run_id
from {rows given: slot_at time, state text, run_id id}
where pgqrs_schedule_slots.schedule_id = :schedule_id
  and pgqrs_schedule_slots.slot_at = given.slot_at;

-- name: queued_slots
select slot_at from pgqrs_schedule_slots
where schedule_id = :schedule_id and state = 'queued'
order by slot_at
limit :most;

-- name: is_active
select run_id from pgqrs_workflow_runs
where run_id = :run_id
  and status not in ('SUCCESS', 'ERROR', 'CANCELLED')
  and deleted_at is null;

-- name: move_on
update pgqrs_schedules
set slots_after = :slots_after,
    last_slot_at = :last_slot_at,
    last_run_id = :last_run_id,
    next_slot_at = :next_slot_at,
    last_error = null
where schedule_id = :schedule_id;

-- name: note_error
update pgqrs_schedules
set last_error = :error,
    next_slot_at = {after :delay}
where schedule_id = :schedule_id
  and paused_at is null;

-- name: list_slots
select slot_at, state, run_id, created_at
from pgqrs_schedule_slots
where schedule_id = :schedule_id
order by slot_at desc
limit :most;
