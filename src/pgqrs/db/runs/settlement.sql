-- name: hold
-- The fence of a whole transaction: those of the given whose lease is still theirs, locked in one order.
-- By message, not by run: a restarted run has a new message, whose tokens begin anew.
select m.run_id, m.message_id, m.lease_token
from {rows given: message_id id, token id}
cross join pgqrs_messages as m
where m.message_id = given.message_id
  and m.lease_token = given.token
  and m.leased_by is not null
order by m.message_id
{lock m};

-- name: _first_wins
-- The first recorded result wins for ever.
on conflict (run_id, step_id) do update
set status = excluded.status,
    output = excluded.output,
    error = excluded.error,
    attempts = excluded.attempts,
    sequence = excluded.sequence,
    completed_at = excluded.completed_at
where pgqrs_workflow_steps.status <> 'SUCCESS'

-- name: record_steps
insert into pgqrs_workflow_steps
    (run_id, step_id, ordinal, status, input, output, error, attempts, sequence, started_at, completed_at)
select given.run_id, given.step_id, given.ordinal, given.status, given.input, given.output, given.error,
    given.attempts, given.sequence, {after -given.seconds}, case when given.status in ('SUCCESS', 'ERROR') then {now} end
from {rows given: run_id id, step_id text, ordinal int, status text, input json, output json, error json, attempts int, seconds seconds, sequence int}
where true
order by given.position
{include _first_wins};

-- name: record_held_steps
-- As record_steps, of those runs that are still held: as many rows change as there are of those.
insert into pgqrs_workflow_steps
    (run_id, step_id, ordinal, status, input, output, error, attempts, sequence, started_at, completed_at)
select m.run_id, given.step_id, given.ordinal, given.status, given.input, given.output, given.error,
    given.attempts, given.sequence, {after -given.seconds}, case when given.status in ('SUCCESS', 'ERROR') then {now} end
from {rows given: message_id id, token id, step_id text, ordinal int, status text, input json, output json, error json, attempts int, seconds seconds, sequence int}
cross join pgqrs_messages as m
where m.message_id = given.message_id
  and m.lease_token = given.token
  and m.leased_by is not null
{include _first_wins};

-- name: end_runs
update pgqrs_workflow_runs
set status = given.status,
    output = given.output,
    error = given.error,
    last_error = given.last_error,
    error_signature = given.signature,
    completed_at = {now},
    updated_at = {now}
from {rows given: id id, status text, output json, error json, last_error text, signature text}
where run_id = given.id;

-- name: yield_runs
-- Retried, asleep, waiting: the run is nobody's until its message is visible again.
update pgqrs_workflow_runs as r
set status = given.status,
    error = coalesce(given.error, r.error),
    last_error = coalesce(given.last_error, r.last_error),
    waiting_for = given.waiting_for,
    paused_at = case when given.status = 'PAUSED' then {now} end,
    updated_at = {now}
from {rows given: id id, status text, error json, last_error text, waiting_for text}
where run_id = given.id;

-- name: yield_messages
update pgqrs_messages
set visible_after = coalesce(given.run_at, {after given.delay}),
    leased_by = null,
    attempts = attempts - given.give_back
from {rows given: id id, run_at time, delay seconds, give_back int}
where run_id = given.id
  -- Said once more for Turso: else it does not see that the index may be used.
  and run_id is not null;

-- name: wake_those_with_signals
-- A signal that came before the run gave up its lease could not wake it: this does.
update pgqrs_messages
set visible_after = {now}
from {rows given: id id, name text}
where run_id = given.id
  and exists (
    select 1 from pgqrs_signals as s
    where s.run_id = given.id and s.name = given.name and s.consumed_at is null
  );

-- name: wake_those_whose_children_ended
-- Likewise for children that ended before their parent began to wait.
update pgqrs_messages
set visible_after = {now}
where run_id {in run_ids}
  and not exists (
    select 1 from pgqrs_workflow_runs as c
    where c.parent_run_id = pgqrs_messages.run_id
      and c.status in ('PENDING', 'RUNNING', 'PAUSED')
      and c.deleted_at is null
  );

-- name: wake_those_of_whose_children_one_ended
-- Likewise for parents that wait for any of the given children.
update pgqrs_messages
set visible_after = {now}
from {rows given: id id, child id}
where run_id = given.id
  and exists (
    select 1 from pgqrs_workflow_runs as c
    where c.run_id = given.child
      and (c.status in ('SUCCESS', 'ERROR', 'CANCELLED') or c.deleted_at is not null)
  );

-- name: wake_those_with_answers
-- Likewise for waits that a person answered while the run was at work.
update pgqrs_messages
set visible_after = {now}
from {rows given: id id, name text}
where run_id = given.id
  and exists (
    select 1 from pgqrs_workflow_steps as s
    where s.run_id = given.id and s.step_id = given.name and s.status = 'SUCCESS'
  );
