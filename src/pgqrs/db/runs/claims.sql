-- name: start_runs
-- What was leased is running now; a run that has ended, or was taken away, meanwhile gives no row. `is_new`: it was
-- never leased before. (`not in`: with `in`, SQLite walks all live runs by their status instead of looking the given
-- ones up.)
update pgqrs_workflow_runs
set status = 'RUNNING',
    attempt = given.attempts,
    started_at = coalesce(started_at, {now}),
    worker_id = :worker_id,
    paused_at = null,
    waiting_for = null,
    updated_at = {now}
from {rows given: id id, message_id id, token id, attempts int}
where run_id = given.id
  and status not in ('SUCCESS', 'ERROR', 'CANCELLED')
  and exists (
    select 1 from pgqrs_messages as m
    where m.message_id = given.message_id
      and m.lease_token = given.token
      and m.leased_by is not null
  )
returning run_id, workflow_id, {text input}, max_attempts, parent_run_id, created_at, {text attributes}, {text headers},
    started_at, started_at = updated_at as is_new;

-- name: next_signal
select signal_id, {text payload}, actor
from pgqrs_signals
where run_id = :run_id
  and name = :name
  and consumed_at is null
order by signal_id
limit 1;

-- name: consume_signal
update pgqrs_signals
set consumed_at = {now}
where signal_id = :signal_id;

-- name: note_who_answered
update pgqrs_workflow_steps
set input = {as_json :answered_by}
where run_id = :run_id
  and step_id = :step_id;

-- name: lease_run
update pgqrs_messages
set visible_after = {after :lease_seconds},
    attempts = 1,
    lease_token = {next_token lease_token},
    leased_by = :worker_id
where run_id = :run_id
returning message_id, queue_id, {text payload}, run_id, priority, visible_after, enqueued_at, attempts, max_attempts,
    lease_token;

-- name: lease_due_runs
-- Those of the given whose time has come. One that this worker holds already, and asks for, is one whose lease it did
-- not hear of. :attempt, where it is given, is the attempt that this is, however many there were.
update pgqrs_messages
set visible_after = {after :lease_seconds},
    attempts = coalesce(
        cast(:attempt as integer), case when visible_after > {now} then attempts when attempts < 0 then 1 else attempts + 1 end
    ),
    lease_token = {next_token lease_token},
    leased_by = :worker_id
where run_id {in run_ids}
  and (attempts < max_attempts or cast(:attempt as integer) is not null)
  and (visible_after <= {now} or leased_by = :worker_id)
returning message_id, queue_id, {text payload}, run_id, priority, visible_after, enqueued_at, attempts, max_attempts,
    lease_token;

-- name: some_run_is_lost
-- Asked in vain most of the time: a look that locks nothing.
select exists (
    select 1 from pgqrs_messages as m
    where m.queue_id {in queue_ids}
      and m.attempts >= m.max_attempts
      and m.visible_after <= {now}
      and m.run_id is not null
);

-- name: lost_runs
-- Runs whose last lease ran out: their workers were lost as often as they may be.
select m.run_id, m.attempts
from pgqrs_messages as m
where m.queue_id {in queue_ids}
  and m.attempts >= m.max_attempts
  and m.visible_after <= {now}
  and m.run_id is not null
limit 100
{skip_locked};

-- name: show_progress
update pgqrs_workflow_runs
set headers = {as_json :headers}
where run_id = :run_id;

-- name: lose_places
-- A replay finds them by their ids alone, wherever it asks for them.
update pgqrs_workflow_steps
set ordinal = -1
from {rows given: id id, name text}
where run_id = given.id
  and step_id = given.name;

-- name: make_room
-- Its number makes the new id its own. It has no place in either case: a replay does not ask for it.
update pgqrs_workflow_steps
set step_id = cast(:before as text) || coalesce(sequence, 0) || cast(:after as text),
    ordinal = -1
where run_id = :run_id
  and step_id = :step_id;

-- name: number_step
update pgqrs_workflow_steps
set sequence = :sequence
where run_id = :run_id
  and step_id = :step_id
  and sequence is null;

-- name: unread_signals
select s.name, min(s.created_at) as created_at
from {rows given: name text}
cross join pgqrs_signals as s
where s.run_id = :run_id
  and s.name = given.name
  and s.consumed_at is null
group by s.name;

-- name: refuse_answer
-- A wait's answer becomes its error. The only record of a success that is ever replaced: no pass has used it.
update pgqrs_workflow_steps
set status = 'ERROR',
    output = null,
    error = {as_json :error}
where run_id = :run_id
  and step_id = :step_id
  and status = 'SUCCESS';
