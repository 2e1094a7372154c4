-- name: delete_messages_of_runs
delete from pgqrs_messages
where run_id {in run_ids};

-- name: parents_of
select distinct parent_run_id from pgqrs_workflow_runs
where run_id {in run_ids} and parent_run_id is not null;

-- name: lock_parents
-- Children that end side by side, and a parent that begins to wait, must see each other.
select m.run_id
from pgqrs_messages as m
where m.run_id {in run_ids}
order by m.message_id
{lock m};

-- name: wake_parents
-- The last child to end wakes its parent; each does where the parent waits for any of them (writes.ANY_OF).
-- Parents at work are not waiting yet, and look by themselves before they do.
update pgqrs_messages
set visible_after = {now}
where run_id {in run_ids}
  and leased_by is null
  and visible_after > {now}
  -- Not those that a person has put away.
  and visible_after < {after :put_away}
  and exists (
    select 1 from pgqrs_workflow_runs as p
    where p.run_id = pgqrs_messages.run_id
      and p.status = 'PAUSED'
      and (
        p.waiting_for like 'any of %'
        or not exists (
          select 1 from pgqrs_workflow_runs as c
          where c.parent_run_id = p.run_id
            and c.status in ('PENDING', 'RUNNING', 'PAUSED')
            and c.deleted_at is null
        )
      )
  );

-- name: lock_message
-- Sender and waiter lock one row, so that no signal falls between a look and a wait.
select m.run_id, m.leased_by, m.visible_after <= {now}
from pgqrs_messages as m
where m.run_id = :run_id
{lock m};

-- name: see_message
-- Without a lock: under that of the run, whose message is locked first.
select m.run_id
from pgqrs_messages as m
where m.run_id = :run_id;

-- name: lock_run
select r.status, r.deleted_at, r.idempotency_key, {text r.error}, r.last_error
from pgqrs_workflow_runs as r
where r.run_id = :run_id
{lock r};

-- name: insert_signal
insert into pgqrs_signals (run_id, name, payload, actor, created_at)
values (:run_id, :name, {as_json :payload}, :actor, {now});

-- name: wake_run
-- A waiting run comes at once; one at work will look by itself. One that is visible already keeps its turn.
update pgqrs_messages
set visible_after = {now}
where run_id = :run_id
  and leased_by is null
  and visible_after > {now};

-- name: wake_waiting_run
-- As wake_run, but a run that a person has put away stays where it is.
update pgqrs_messages
set visible_after = {now}
where run_id = :run_id
  and leased_by is null
  and visible_after > {now}
  and visible_after < {after :put_away};

-- name: paused_steps
select step_id from pgqrs_workflow_steps
where run_id = :run_id
  and status = 'PAUSED';

-- name: answer_step
update pgqrs_workflow_steps
set status = 'SUCCESS',
    input = {as_json :answered_by},
    output = {as_json :output},
    completed_at = {now}
where run_id = :run_id
  and step_id = :step_id
  and status = 'PAUSED';

-- name: set_status
update pgqrs_workflow_runs
set status = :status,
    waiting_for = :waiting_for,
    paused_at = case when cast(:status as text) = 'PAUSED' then {now} end,
    completed_at = case when cast(:status as text) = 'CANCELLED' then {now} end,
    last_error = coalesce(:last_error, last_error),
    updated_at = {now}
where run_id = :run_id;

-- name: put_away_message
-- Out of everybody's hands until somebody says otherwise; the token grows, so whoever held it is fenced.
update pgqrs_messages
set visible_after = {after :delay},
    -- Taken away, not lost: the attempt does not count.
    attempts = case when leased_by is null or attempts <= 0 then attempts else attempts - 1 end,
    leased_by = null,
    lease_token = {next_token lease_token}
where run_id = :run_id;

-- name: children_of
select run_id from pgqrs_workflow_runs
where parent_run_id = :run_id
  and status in ('PENDING', 'RUNNING', 'PAUSED');

-- name: clear_ends
update pgqrs_workflow_runs
set status = 'PENDING',
    output = null,
    error = null,
    error_signature = null,
    completed_at = null,
    paused_at = null,
    waiting_for = null,
    updated_at = {now}
where run_id {in run_ids};

-- name: last_restarts
-- Newest first; more than one, for the call that is repeated after others have come and gone.
select {text e.data}, e.actor, e.created_at
from pgqrs_workflow_events as e
where e.run_id = :run_id
  and e.event_type = 'restarted'
order by e.event_id desc
limit 10;

-- name: delete_steps_from
-- The named step and all that were recorded after it. (Not by started_at: that is the database's time less what a
-- worker's clock measured, too rough to tell short steps apart.)
delete from pgqrs_workflow_steps
where run_id = :run_id
  and (coalesce(completed_at, started_at), ordinal) >= (
    select coalesce(s.completed_at, s.started_at), s.ordinal from pgqrs_workflow_steps as s
    where s.run_id = :run_id and s.step_id = :step_id
  );

-- name: delete_steps
delete from pgqrs_workflow_steps
where run_id = :run_id;

-- name: revive_messages
-- A message for a run that has none, or the one it has, fenced off from whoever held it and visible now.
insert into pgqrs_messages (queue_id, payload, run_id, priority, visible_after, enqueued_at, max_attempts)
select w.queue_id, cast('{"run_id": ' || r.run_id || '}' as {json}), r.run_id, r.priority, {now}, {now}, r.max_attempts
from pgqrs_workflow_runs as r
join pgqrs_workflows as w on w.workflow_id = r.workflow_id
where r.run_id {in run_ids}
on conflict (run_id) where run_id is not null do update
set visible_after = {now},
    leased_by = null,
    attempts = 0,
    lease_token = {next_token pgqrs_messages.lease_token};

-- name: mark_deleted
update pgqrs_workflow_runs
set deleted_at = {now},
    delete_reason = :reason,
    updated_at = {now}
where run_id = :run_id;

-- name: hide_message
-- A century later, so that nobody leases it; `show_message` takes the century off again. Whoever held it is fenced.
update pgqrs_messages
set visible_after = case when leased_by is null then {shift visible_after by :seconds} else {after :seconds} end,
    attempts = case when leased_by is null or attempts <= 0 then attempts else attempts - 1 end,
    leased_by = null,
    lease_token = {next_token lease_token}
where run_id = :run_id;

-- name: mark_restored
-- Nobody is at work on it, whatever it was doing when it was deleted.
update pgqrs_workflow_runs
set deleted_at = null,
    delete_reason = null,
    status = case when status = 'RUNNING' then 'PENDING' else status end,
    updated_at = {now}
where run_id = :run_id;

-- name: show_message
update pgqrs_messages
set visible_after = {shift visible_after by -:seconds}
where run_id = :run_id;

-- name: queues_of_runs
select distinct w.queue_id
from pgqrs_workflow_runs as r
join pgqrs_workflows as w on w.workflow_id = r.workflow_id
where r.run_id {in run_ids};
