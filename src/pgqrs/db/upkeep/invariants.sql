-- Each question answers with the rows that break one fact, the first :most of them; no row: it holds. One statement each,
-- so that a transaction is seen whole or not at all. None compares with the present: only with what is on record.

-- name: _has_ended
r.status in ('SUCCESS', 'ERROR', 'CANCELLED')

-- name: _goes_on
r.status in ('PENDING', 'RUNNING', 'PAUSED')

-- name: _is_imported
-- Executions of the former layout are copied as they were: their ends were recorded by others.
(r.started_at is null and r.idempotency_key like 'v1:%')

-- name: _waits_long
-- Paused, in nobody's hands, not put away by a person, and not to be looked at for a while yet.
r.status = 'PAUSED'
  and r.deleted_at is null
  and m.run_id = r.run_id
  and m.run_id is not null
  and m.leased_by is null
  and m.visible_after > {shift r.paused_at by 5.0}
  and m.visible_after < {shift r.paused_at by :put_away}

-- name: _waits
-- What a run waits for, each between two commas: it may be several things, of which any or all are needed.
', ' || replace(r.waiting_for, 'any of ', '') || ', '

-- name: _is_waited_for
-- A child; `replace` is the one way to look for a text that all databases have.
c.parent_run_id = r.run_id
  and c.parent_run_id is not null
  and replace({include _waits}, ', run ' || c.run_id || ', ', '') <> {include _waits}

-- name: tables_in_use
select 'pgqrs_messages' as name where exists (select 1 from pgqrs_messages)
union all
select 'pgqrs_archived_messages' where exists (select 1 from pgqrs_archived_messages)
union all
select 'pgqrs_workflow_runs' where exists (select 1 from pgqrs_workflow_runs)
union all
select 'pgqrs_workflow_steps' where exists (select 1 from pgqrs_workflow_steps)
union all
select 'pgqrs_workflow_events' where exists (select 1 from pgqrs_workflow_events)
union all
select 'pgqrs_signals' where exists (select 1 from pgqrs_signals)
union all
select 'pgqrs_outbox_events' where exists (select 1 from pgqrs_outbox_events)
union all
select 'pgqrs_schedule_slots' where exists (select 1 from pgqrs_schedule_slots)
union all
select 'pgqrs_run_attributes' where exists (select 1 from pgqrs_run_attributes);

-- name: runs_without_message
select r.run_id
from pgqrs_workflow_runs as r
where {include _goes_on}
  and not exists (
    select 1 from pgqrs_messages as m
    where m.run_id = r.run_id and m.run_id is not null
  )
limit :most;

-- name: messages_in_another_queue
select m.run_id
from pgqrs_messages as m
cross join pgqrs_workflow_runs as r
cross join pgqrs_workflows as w
where m.run_id is not null
  and r.run_id = m.run_id
  and w.workflow_id = r.workflow_id
  and w.queue_id <> m.queue_id
limit :most;

-- name: signals_that_woke_nobody
-- Whoever sends a signal makes the run visible then; a run that begins to wait with one unread, at once.
select distinct r.run_id
from pgqrs_signals as s
cross join pgqrs_workflow_runs as r
cross join pgqrs_messages as m
where s.consumed_at is null
  and r.run_id = s.run_id
  and replace({include _waits}, ', ' || s.name || ', ', '') <> {include _waits}
  and {include _waits_long}
  and m.visible_after > {shift s.created_at by 5.0}
  and exists (
    select 1 from pgqrs_workflow_steps as w
    where w.run_id = s.run_id
      and w.status = 'PAUSED'
      -- wait_for:go, or with its number or its branch: wait_for:go#2, wait_for:go@1.
      and substr(w.step_id || '#', 1, length(s.name) + 10) in ('wait_for:' || s.name || '#', 'wait_for:' || s.name || '@')
  )
limit :most;

-- name: children_that_woke_nobody
-- The last child to end makes its parent visible then, or any of those that are waited for, where one is enough; a
-- parent that begins to wait afterwards, at once.
select r.run_id
from pgqrs_workflow_runs as r
cross join pgqrs_messages as m
where {include _waits_long}
  and exists (
    select 1 from pgqrs_workflow_runs as c
    where {include _is_waited_for}
  )
  and (
    not exists (
      select 1 from pgqrs_workflow_runs as c
      where c.parent_run_id = r.run_id
        and c.parent_run_id is not null
        and (
          (c.status in ('PENDING', 'RUNNING', 'PAUSED') and c.deleted_at is null)
          or m.visible_after <= {shift c.updated_at by 5.0}
        )
    )
    or (
      r.waiting_for like 'any of %'
      and exists (
        select 1 from pgqrs_workflow_runs as c
        where {include _is_waited_for}
          and (c.status in ('SUCCESS', 'ERROR', 'CANCELLED') or c.deleted_at is not null)
          and m.visible_after > {shift c.updated_at by 5.0}
      )
    )
  )
limit :most;

-- name: events_after_the_end
-- After an end only a restart brings anything new; deleting and restoring leave the end as it is.
select distinct ended.run_id
from pgqrs_workflow_events as ended
cross join pgqrs_workflow_events as later
where ended.event_type in ('succeeded', 'failed', 'cancelled')
  and later.run_id = ended.run_id
  and later.event_id > ended.event_id
  and later.event_type not in ('restarted', 'deleted', 'restored')
  and not exists (
    select 1 from pgqrs_workflow_events as again
    where again.run_id = ended.run_id
      and again.event_id > ended.event_id
      and again.event_id < later.event_id
      and again.event_type = 'restarted'
  )
limit :most;

-- name: ends_of_another_kind
-- The last word of the history is what the run's own row says.
select r.run_id
from pgqrs_workflow_events as ended
cross join pgqrs_workflow_runs as r
where ended.event_type in ('succeeded', 'failed', 'cancelled')
  and r.run_id = ended.run_id
  and r.status <> case ended.event_type
    when 'succeeded' then 'SUCCESS'
    when 'failed' then 'ERROR'
    else 'CANCELLED'
  end
  and not exists (
    select 1 from pgqrs_workflow_events as later
    where later.run_id = ended.run_id
      and later.event_id > ended.event_id
      and later.event_type in ('restarted', 'succeeded', 'failed', 'cancelled')
  )
limit :most;

-- name: _recorded_late
select s.run_id, s.step_id
from pgqrs_workflow_runs as r
cross join pgqrs_workflow_steps as s
where s.run_id = r.run_id
  and s.completed_at > r.completed_at
  and not {include _is_imported}

-- name: steps_after_the_end
{include _recorded_late}
  and r.status in ('SUCCESS', 'ERROR')
limit :most;

-- name: steps_after_the_cancel
{include _recorded_late}
  and r.status = 'CANCELLED'
limit :most;

-- name: children_after_the_cancel
select c.run_id
from pgqrs_workflow_runs as r
cross join pgqrs_workflow_runs as c
where r.status = 'CANCELLED'
  and c.parent_run_id = r.run_id
  and c.parent_run_id is not null
  and c.created_at > r.completed_at
limit :most;

-- name: steps_without_result
select s.run_id, s.step_id
from pgqrs_workflow_steps as s
where s.status = 'SUCCESS'
  and (s.completed_at is null or s.output is null or s.error is not null)
  and not exists (
    select 1 from pgqrs_workflow_runs as r
    where r.run_id = s.run_id and r.idempotency_key like 'v1:%'
  )
limit :most;

-- name: failed_steps_without_error
select s.run_id, s.step_id
from pgqrs_workflow_steps as s
where s.status = 'ERROR'
  and (s.completed_at is null or s.error is null)
limit :most;

-- name: steps_at_one_place
-- Of the handler's own branch, which counts from 0; the steps of other branches have an @ in their ids.
select s.run_id, min(s.step_id)
from pgqrs_workflow_steps as s
where s.ordinal >= 0
  and s.step_id not like '%@%'
group by s.run_id, s.ordinal
having count(*) > 1
limit :most;

-- name: ends_without_result
select r.run_id
from pgqrs_workflow_runs as r
where {include _has_ended}
  and (
    r.completed_at is null
    or (r.status = 'SUCCESS' and (r.output is null or r.error is not null))
    or (r.status <> 'SUCCESS' and r.output is not null)
    or (r.status = 'ERROR' and r.error is null)
    or (r.status <> 'CANCELLED' and (r.started_at is null or r.attempt < 1))
  )
  and not {include _is_imported}
limit :most;

-- name: results_without_end
select r.run_id
from pgqrs_workflow_runs as r
where {include _goes_on}
  and (r.completed_at is not null or r.output is not null)
limit :most;

-- name: pauses_since_never
select r.run_id
from pgqrs_workflow_runs as r
where r.status = 'PAUSED'
  and r.paused_at is null
limit :most;

-- name: messages_of_ended_runs
select r.run_id
from pgqrs_messages as m
cross join pgqrs_workflow_runs as r
where m.run_id is not null
  and r.run_id = m.run_id
  and {include _has_ended}
limit :most;

-- name: tokens_behind_attempts
-- A lease counts both. A message that its handler gave up on has all its attempts used at once.
select m.message_id
from pgqrs_messages as m
where m.lease_token < 0
   or (m.lease_token < m.attempts and m.attempts < m.max_attempts)
   or (m.leased_by is not null and (m.lease_token < 1 or m.attempts < 1))
limit :most;

-- name: archived_without_lease
select a.message_id
from pgqrs_archived_messages as a
where a.lease_token < a.attempts
   or a.attempts < 1
limit :most;

-- name: messages_of_one_run
select m.run_id
from pgqrs_messages as m
where m.run_id is not null
group by m.run_id
having count(*) > 1
limit :most;

-- name: leases_that_differ
-- Message and run are leased in one transaction, to one worker.
select m.run_id
from pgqrs_messages as m
cross join pgqrs_workflow_runs as r
where m.run_id is not null
  and m.leased_by is not null
  and r.run_id = m.run_id
  and (r.status <> 'RUNNING' or r.worker_id is null or r.worker_id <> m.leased_by or r.deleted_at is not null)
limit :most;

-- name: live_and_archived
select m.message_id
from pgqrs_archived_messages as a
cross join pgqrs_messages as m
where m.message_id = a.message_id
limit :most;

-- name: attempts_out_of_bounds
select m.message_id
from pgqrs_messages as m
where m.attempts < 0
   or m.attempts > m.max_attempts
limit :most;

-- name: run_attempts_out_of_bounds
select r.run_id
from pgqrs_workflow_runs as r
where r.attempt < 0
   or r.attempt > r.max_attempts
   or (r.status = 'RUNNING' and (r.attempt < 1 or r.started_at is null))
limit :most;

-- name: attempts_that_differ
select m.run_id
from pgqrs_messages as m
cross join pgqrs_workflow_runs as r
where m.run_id is not null
  and r.run_id = m.run_id
  and (m.max_attempts <> r.max_attempts or (m.leased_by is not null and m.attempts <> r.attempt))
limit :most;

-- name: events_published_and_dead
select o.event_id
from pgqrs_outbox_events as o
where o.published_at is not null
  and o.dead_at is not null
limit :most;

-- name: events_dead_untried
select o.event_id
from pgqrs_outbox_events as o
where o.dead_at is not null
  and (o.attempts < 1 or o.last_error is null)
limit :most;

-- name: events_overtaken
-- Somebody has taken a later one of the run first. One that was dead and is sent after all (it keeps its error) was
-- overtaken rightly.
select first.event_id
from pgqrs_outbox_events as first
where first.published_at is null
  and first.dead_at is null
  and first.last_error is null
  and exists (
    select 1 from pgqrs_outbox_events as later
    where later.aggregate_id = first.aggregate_id
      and later.event_id > first.event_id
      and (later.lease_token <> 0 or later.published_at is not null or later.dead_at is not null)
  )
limit :most;

-- name: events_of_one_id
select min(o.event_id)
from pgqrs_outbox_events as o
group by o.event_uuid
having count(*) > 1
limit :most;

-- name: runs_of_one_key
select r.idempotency_key
from pgqrs_workflow_runs as r
where r.idempotency_key is not null
  and r.deleted_at is null
group by r.idempotency_key
having count(*) > 1
limit :most;

-- name: slots_and_runs
select l.schedule_id, l.slot_at
from pgqrs_schedule_slots as l
where (l.state = 'fired') <> (l.run_id is not null)
limit :most;

-- name: slots_of_one_run
select l.run_id
from pgqrs_schedule_slots as l
where l.run_id is not null
group by l.run_id
having count(*) > 1
limit :most;

-- name: slots_before_their_time
select l.schedule_id, l.slot_at
from pgqrs_schedule_slots as l
where l.created_at < l.slot_at
limit :most;

-- name: signals_passed_over
select s.signal_id
from pgqrs_signals as s
where s.consumed_at is null
  and exists (
    select 1 from pgqrs_signals as later
    where later.run_id = s.run_id
      and later.name = s.name
      and later.signal_id > s.signal_id
      and later.consumed_at is not null
  )
limit :most;

-- name: signals_without_step
-- Runs that have read more signals than they have steps that wait for one. Only those whose history is whole, and that
-- were never reset: that forgets steps, not signals. A wait whose answer had another type than it asks for has failed.
select s.run_id
from pgqrs_signals as s
where s.consumed_at is not null
  and exists (
    select 1 from pgqrs_workflow_events as e
    where e.run_id = s.run_id and e.event_type = 'created'
  )
  and not exists (
    select 1 from pgqrs_workflow_events as e
    where e.run_id = s.run_id and e.event_type = 'restarted'
  )
group by s.run_id
having count(*) > (
    select count(*) from pgqrs_workflow_steps as w
    where w.run_id = s.run_id
      and w.step_id like 'wait_for:%'
      -- A wait that timed out has read none.
      and (w.status = 'SUCCESS' or (w.status = 'ERROR' and {text w.error} not like '_"type":"WaitTimeout"%'))
)
limit :most;

-- name: messages_without_queue
select m.message_id
from pgqrs_messages as m
where not exists (select 1 from pgqrs_queues as q where q.queue_id = m.queue_id)
limit :most;

-- name: archived_without_queue
select a.message_id
from pgqrs_archived_messages as a
where not exists (select 1 from pgqrs_queues as q where q.queue_id = a.queue_id)
limit :most;

-- name: messages_without_run
select m.message_id
from pgqrs_messages as m
where m.run_id is not null
  and not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = m.run_id)
limit :most;

-- name: steps_without_run
select s.run_id, s.step_id
from pgqrs_workflow_steps as s
where not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = s.run_id)
limit :most;

-- name: signals_without_run
select s.signal_id
from pgqrs_signals as s
where not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = s.run_id)
limit :most;

-- name: events_without_run
select distinct e.run_id
from pgqrs_workflow_events as e
where not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = e.run_id)
limit :most;

-- name: attributes_without_run
select distinct a.run_id
from pgqrs_run_attributes as a
where not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = a.run_id)
limit :most;

-- name: unpublished_without_run
-- Published ones may outlive their run.
select o.event_id
from pgqrs_outbox_events as o
where o.published_at is null
  and o.dead_at is null
  and not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = o.aggregate_id)
limit :most;

-- name: runs_without_parent
select r.run_id
from pgqrs_workflow_runs as r
where r.parent_run_id is not null
  and not exists (select 1 from pgqrs_workflow_runs as p where p.run_id = r.parent_run_id)
limit :most;

-- name: runs_without_workflow
select r.run_id
from pgqrs_workflow_runs as r
where not exists (select 1 from pgqrs_workflows as w where w.workflow_id = r.workflow_id)
limit :most;

-- name: integrity
pragma integrity_check;

-- name: references
pragma foreign_key_check;
