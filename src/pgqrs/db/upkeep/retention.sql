-- `x is not null` beside a comparison with x: Turso takes a partial index only where its condition stands in the text.

-- name: set_policy
insert into pgqrs_retention (what, workflow, status, keep_seconds, visible_after)
values (:what, :workflow, :status, :keep, {now})
on conflict (what, workflow, status) do update
set keep_seconds = excluded.keep_seconds,
    visible_after = excluded.visible_after;

-- name: add_policy
-- As set_policy, but one that is there stays as it is.
insert into pgqrs_retention (what, workflow, status, keep_seconds, visible_after)
values (:what, :workflow, :status, :keep, {now})
on conflict (what, workflow, status) do nothing;

-- name: remove_policy
delete from pgqrs_retention
where what = :what
  and workflow = :workflow
  and status = :status;

-- name: _keep
-- A number that is no length of time (negative, infinite, not a number) keeps everything: it must neither delete rows
-- that a policy was meant to keep nor fail the other policies.
case when p.keep_seconds between 0 and 1e10 then p.keep_seconds else 1e10 end as keep_seconds

-- name: list_policies
select p.what, p.workflow, p.status, {include _keep}
from pgqrs_retention as p
order by {by p.what}, {by p.workflow}, {by p.status};

-- name: take_turn
-- For some time the others leave the policies to whoever did this. Nothing depends on it but the load.
update pgqrs_retention
set visible_after = {after :seconds}
where visible_after <= {now};

-- name: keep_turn
update pgqrs_retention
set visible_after = {after :seconds};

-- name: _ranges
-- What each policy is about: a workflow and a status, a queue, or a whole table. Of several policies for the same, the
-- most specific remains: '' sorts before every name. `apart`: soft-deleted runs have a policy of their own there.
select p.what, p.workflow, p.status, {include _keep}, p.visible_after, w.workflow_id as target_id,
    s.status as target_status, (
        select count(*) from pgqrs_retention as d
        where d.what = 'deleted_runs' and d.workflow in ('', w.name)
    ) as apart
from pgqrs_retention as p
cross join pgqrs_workflows as w
cross join (
    select 'SUCCESS' as status
    union all select 'ERROR'
    union all select 'CANCELLED'
) as s
where p.what = 'runs'
  and p.workflow in ('', w.name)
  and p.status in ('', s.status)
  and not exists (
    select 1 from pgqrs_retention as q
    where q.what = 'runs'
      and q.workflow in ('', w.name)
      and q.status in ('', s.status)
      and (q.workflow, q.status) > (p.workflow, p.status)
  )
union all
select p.what, p.workflow, p.status, {include _keep}, p.visible_after, w.workflow_id, '', 0
from pgqrs_retention as p
cross join pgqrs_workflows as w
where p.what = 'deleted_runs'
  and p.workflow in ('', w.name)
  and not exists (
    select 1 from pgqrs_retention as q
    where q.what = 'deleted_runs' and q.workflow = w.name and p.workflow = ''
  )
union all
select p.what, p.workflow, p.status, {include _keep}, p.visible_after, q.queue_id, '', 0
from pgqrs_retention as p
cross join pgqrs_queues as q
where p.what = 'archived_messages'
  and p.workflow in ('', q.name)
  and not exists (
    select 1 from pgqrs_retention as o
    where o.what = 'archived_messages' and o.workflow = q.name and p.workflow = ''
  )
union all
select p.what, p.workflow, p.status, {include _keep}, p.visible_after, 0, '', 0
from pgqrs_retention as p
where p.what in ('events', 'outbox', 'workers', 'schedule_slots')

-- name: ranges
select g.what, g.workflow, g.status, g.keep_seconds, g.target_id, g.target_status, g.apart
from (
{include _ranges}
) as g
order by {by g.what}, {by g.workflow}, {by g.status}, g.target_id, {by g.target_status};

-- name: due_ranges
-- Those that nobody is at, and whose oldest is old enough: one look into an index each.
select g.what, g.workflow, g.status, g.keep_seconds, g.target_id, g.target_status, g.apart
from (
{include _ranges}
) as g
where (g.visible_after <= {now} or cast(:mine as integer) = 1)
  and case g.what
    when 'runs' then exists (
        select 1 from pgqrs_workflow_runs as r
        where r.workflow_id = g.target_id
          and r.status = g.target_status
          and r.completed_at is not null
          and r.completed_at <= {after -g.keep_seconds}
    )
    when 'deleted_runs' then exists (
        select 1 from pgqrs_workflow_runs as r
        where r.workflow_id = g.target_id
          and r.deleted_at is not null
          and r.deleted_at <= {after -g.keep_seconds}
    )
    when 'archived_messages' then exists (
        select 1 from pgqrs_archived_messages as a
        where a.queue_id = g.target_id
          and a.archived_at <= {after -g.keep_seconds}
    )
    when 'events' then exists (
        select 1 from (
            select e.created_at from pgqrs_workflow_events as e order by e.event_id limit 1
        ) as head
        where head.created_at <= {after -g.keep_seconds}
    )
    when 'outbox' then exists (
        select 1 from pgqrs_outbox_events as o
        where o.published_at is not null and o.published_at <= {after -g.keep_seconds}
    )
    -- Small tables, looked at when a janitor looks at everything.
    else true
  end
order by {by g.what}, {by g.workflow}, {by g.status}, g.target_id, {by g.target_status};

-- name: pick_ended
-- The oldest of a range behind the place given, whatever may keep them: so each batch reads no more than it asks for.
select r.run_id, r.completed_at
from pgqrs_workflow_runs as r
where r.workflow_id = :target_id
  and r.status = :target_status
  and r.completed_at is not null
  and r.completed_at <= {after -:keep}
  and (r.completed_at, r.run_id) > (:after_at, :after_id)
order by r.completed_at, r.run_id
limit :batch;

-- name: pick_deleted
select r.run_id, r.deleted_at
from pgqrs_workflow_runs as r
where r.workflow_id = :target_id
  and r.deleted_at is not null
  and r.deleted_at <= {after -:keep}
  and (r.deleted_at, r.run_id) > (:after_at, :after_id)
order by r.deleted_at, r.run_id
limit :batch;

-- name: _may_go
-- The parent may still ask for the result; what is not published yet may still need its run.
not exists (
    select 1 from pgqrs_workflow_runs as p
    where p.run_id = r.parent_run_id
      and p.status not in ('SUCCESS', 'ERROR', 'CANCELLED')
  )
  and not exists (
    select 1 from pgqrs_outbox_events as o
    where o.aggregate_id = r.run_id and o.published_at is null and o.dead_at is null
  )

-- name: lock_messages
-- Messages first, as everybody locks: whoever has one is at work on its run.
select m.run_id
from {rows given: id id}
cross join pgqrs_messages as m
where m.run_id = given.id
  and m.run_id is not null
order by m.message_id
{skip_locked};

-- name: lock_ended
-- coalesce: with stale statistics PostgreSQL would rather walk all runs of that status than look the given ones up.
select r.run_id
from {rows given: id id}
cross join pgqrs_workflow_runs as r
where r.run_id = given.id
  and coalesce(r.status, '') = :target_status
  and r.completed_at <= {after -:keep}
  and (r.deleted_at is null or cast(:apart as integer) = 0)
  and {include _may_go}
  and not exists (
    select 1 from pgqrs_messages as m
    where m.run_id = r.run_id and m.run_id is not null
  )
order by r.run_id
{skip_locked};

-- name: lock_deleted
-- `held`: the runs whose message this transaction has locked.
select r.run_id
from {rows given: id id}
cross join pgqrs_workflow_runs as r
where r.run_id = given.id
  and r.deleted_at <= {after -:keep}
  and {include _may_go}
  and not exists (
    select 1 from pgqrs_messages as m
    where m.run_id = r.run_id and m.run_id is not null and not m.run_id {in held}
  )
order by r.run_id
{skip_locked};

-- name: parents_among
-- Which of the given still have children.
select distinct c.parent_run_id
from {rows given: id id}
cross join pgqrs_workflow_runs as c
where c.parent_run_id = given.id
  and c.parent_run_id is not null;

-- name: detach_children
update pgqrs_workflow_runs
set parent_run_id = null
where run_id in (
    select c.run_id from {rows given: id id}
    cross join pgqrs_workflow_runs as c
    where c.parent_run_id = given.id and c.parent_run_id is not null
    limit :most
    {skip_locked}
);

-- name: delete_steps
delete from pgqrs_workflow_steps
where run_id {in run_ids};

-- name: delete_signals
delete from pgqrs_signals
where run_id {in run_ids};

-- name: delete_events_of_runs
delete from pgqrs_workflow_events
where run_id {in run_ids};

-- name: delete_attributes
delete from pgqrs_run_attributes
where run_id {in run_ids};

-- name: delete_messages_of_runs
delete from pgqrs_messages
where run_id {in run_ids}
  and run_id is not null;

-- name: delete_runs
delete from pgqrs_workflow_runs
where run_id {in run_ids};

-- name: pick_archived
select a.message_id, a.archived_at
from pgqrs_archived_messages as a
where a.queue_id = :target_id
  and a.archived_at <= {after -:keep}
  and a.archived_at >= :after_at
order by a.archived_at
limit :batch
{skip_locked};

-- name: delete_archived
delete from pgqrs_archived_messages
where message_id {in ids};

-- name: pick_events
-- Ids grow with time: the head of the primary key is the oldest, and nothing behind it is read.
select head.event_id, head.created_at
from (
    select e.event_id, e.created_at
    from pgqrs_workflow_events as e
    where e.event_id > :after_id
    order by e.event_id
    limit :batch
) as head
where head.created_at <= {after -:keep}
order by head.event_id;

-- name: delete_events
delete from pgqrs_workflow_events
where event_id in (
    select e.event_id
    from {rows given: id id}
    cross join pgqrs_workflow_events as e
    where e.event_id = given.id
    {skip_locked}
);

-- name: pick_published
select o.event_id, o.published_at
from pgqrs_outbox_events as o
where o.published_at is not null
  and o.published_at <= {after -:keep}
  and o.published_at >= :after_at
order by o.published_at
limit :batch
{skip_locked};

-- name: pick_dead
select o.event_id, o.dead_at
from pgqrs_outbox_events as o
where o.dead_at is not null
  and o.dead_at <= {after -:keep}
  and o.dead_at >= :after_at
order by o.dead_at
limit :batch
{skip_locked};

-- name: delete_outbox
delete from pgqrs_outbox_events
where event_id {in ids};

-- name: _gone_worker
(w.stopped_at <= {after -:keep} or (w.status = 'READY' and w.heartbeat_at <= {after -:silent}))

-- name: pick_workers
select w.worker_id, w.created_at
from pgqrs_workers as w
where w.worker_id > :after_id
  and {include _gone_worker}
order by w.worker_id
limit :batch;

-- name: workers_at_work
-- Which of the given hold a message, or are shown as executing a run.
select m.leased_by from pgqrs_messages as m
where m.leased_by {in ids} and m.visible_after > {now}
union
select r.worker_id from pgqrs_workflow_runs as r
where r.status = 'RUNNING' and r.worker_id {in ids};

-- name: delete_workers
delete from pgqrs_workers
where worker_id in (
    select w.worker_id
    from {rows given: id id}
    cross join pgqrs_workers as w
    where w.worker_id = given.id
      and {include _gone_worker}
    {skip_locked}
);

-- name: _old_slots
-- Not those at or after the schedule's last one, nor its newest: what they say must not be forgotten, or a slot would
-- fire twice. Nor one that waits, or whose run goes on. Of a schedule that is gone, all.
select l.schedule_id, l.slot_at
from (
    with recursive ids (schedule_id) as (
        select min(schedule_id) from pgqrs_schedule_slots
      union all
        select (select min(n.schedule_id) from pgqrs_schedule_slots as n where n.schedule_id > ids.schedule_id)
        from ids
        where ids.schedule_id is not null
    )
    select ids.schedule_id as schedule_id, s.schedule_id as known, s.last_slot_at as last_slot_at, (
        select n.slot_at from pgqrs_schedule_slots as n
        where n.schedule_id = ids.schedule_id
        order by n.slot_at desc
        -- Its ten newest. Written out: of a parameter here, Turso counts down once for all schedules together.
        limit 1 offset 10
    ) as newest_at
    from ids
    left join pgqrs_schedules as s on s.schedule_id = ids.schedule_id
) as i
cross join pgqrs_schedule_slots as l
where l.schedule_id = i.schedule_id
  and l.slot_at <= {after -:keep}
  and l.created_at <= {after -:keep}
  and (i.known is null or (l.slot_at < i.last_slot_at and l.slot_at <= i.newest_at and l.state <> 'queued'))
  and not exists (
    select 1 from pgqrs_workflow_runs as r
    where r.run_id = l.run_id and r.status not in ('SUCCESS', 'ERROR', 'CANCELLED')
  )

-- name: pick_slots
{include _old_slots}
limit :batch;

-- name: delete_slots
delete from pgqrs_schedule_slots
where exists (
    select 1 from {rows given: id id, slot_at time}
    where given.id = pgqrs_schedule_slots.schedule_id and given.slot_at = pgqrs_schedule_slots.slot_at
);

-- name: count_ended
-- How many are old enough, looking at the first :batch of them, and how many of those may go.
select count(*), count(case when {include _may_go} then 1 end)
from (
    select r.run_id, r.parent_run_id
    from pgqrs_workflow_runs as r
    where r.workflow_id = :target_id
      and r.status = :target_status
      and r.completed_at is not null
      and r.completed_at <= {after -:keep}
      and (r.deleted_at is null or cast(:apart as integer) = 0)
    order by r.completed_at, r.run_id
    limit :batch
) as r;

-- name: count_deleted
select count(*), count(case when {include _may_go} then 1 end)
from (
    select r.run_id, r.parent_run_id
    from pgqrs_workflow_runs as r
    where r.workflow_id = :target_id
      and r.deleted_at is not null
      and r.deleted_at <= {after -:keep}
    order by r.deleted_at, r.run_id
    limit :batch
) as r;

-- name: count_archived
select count(*), count(*)
from (
    select 1 from pgqrs_archived_messages as a
    where a.queue_id = :target_id
      and a.archived_at <= {after -:keep}
    limit :batch
) as old;

-- name: count_events
select count(*), count(*)
from (
    select e.created_at from pgqrs_workflow_events as e
    order by e.event_id
    limit :batch
) as head
where head.created_at <= {after -:keep};

-- name: count_published
select count(*), count(*)
from (
    select 1 from pgqrs_outbox_events as o
    where o.published_at is not null and o.published_at <= {after -:keep}
    limit :batch
) as old;

-- name: count_workers
-- Those that hold something are counted as well: to know which, a whole table would have to be read.
select count(*), count(*)
from (
    select 1 from pgqrs_workers as w
    where {include _gone_worker}
    limit :batch
) as old;

-- name: count_slots
select count(*), count(*)
from (
    {include _old_slots}
    limit :batch
) as old;
