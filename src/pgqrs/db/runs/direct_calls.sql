-- name: callers
-- The workers of direct calls: those at work, those whose process has ended without a word, and those that were
-- cancelled. A call whose run has ended leaves none behind.
select worker_id, status, {seconds {now} since heartbeat_at}, {text info}
from pgqrs_workers
where queue_id is null
  and hostname = :name
order by worker_id;

-- name: live_children
select r.run_id, w.name, w.queue_id
from pgqrs_workflow_runs as r
join pgqrs_workflows as w on w.workflow_id = r.workflow_id
where r.parent_run_id {in run_ids}
  and r.status in ('PENDING', 'RUNNING', 'PAUSED')
  and r.deleted_at is null
order by r.run_id;

-- name: holders
-- What the workers that hold the given runs say of themselves.
select m.message_id, m.lease_token, {text w.info}
from pgqrs_messages as m
join pgqrs_workers as w on w.worker_id = m.leased_by
where m.run_id {in run_ids}
  and m.visible_after > {now}
  and m.leased_by <> :worker_id;

-- name: expire_leases
-- Exactly these leases end now, as they would have by themselves: the attempt counts, and the next lease fences them.
update pgqrs_messages
set visible_after = {now}
from {rows given: id id, token id}
where message_id = given.id
  and lease_token = given.token
  and leased_by is not null;

-- name: seconds_until_due
select min({seconds visible_after since {now}})
from pgqrs_messages
where run_id {in run_ids}
  and attempts < max_attempts;

-- name: release_runs
-- What a call that gives up still holds comes back now, without counting the attempt.
update pgqrs_messages
set visible_after = {now},
    leased_by = null,
    attempts = case when attempts > 0 then attempts - 1 else 0 end
where run_id {in run_ids}
  and leased_by = :worker_id;

-- name: delete_worker
delete from pgqrs_workers
where worker_id = :worker_id;
