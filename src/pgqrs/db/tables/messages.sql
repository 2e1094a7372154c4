-- name: enqueue_messages
-- One statement however many; the ids come in the order given. No row when the queue is gone.
insert into pgqrs_messages (queue_id, payload, priority, visible_after, enqueued_at, max_attempts)
select
    q.queue_id,
    given.payload,
    given.priority,
    coalesce(given.run_at, {after given.delay}),
    {now},
    given.max_attempts
from pgqrs_queues as q
cross join {rows given: payload json, priority int, run_at time, delay seconds, max_attempts int}
where q.queue_id = :queue_id
order by given.position
{keep q}
returning message_id;

-- name: _levels
-- The priorities that are in use, highest first, each found by one look into the index.
levels (queue_id, priority, place) as (
    select q.queue_id, (
        select m.priority from pgqrs_messages as m
        where m.queue_id = q.queue_id and m.attempts < m.max_attempts
        order by m.priority desc limit 1
    ), queues.position
    from {rows queues: queue_id id}
    cross join pgqrs_queues as q
    where q.queue_id = queues.queue_id and q.paused_at is null
  union all
    select levels.queue_id, (
        select m.priority from pgqrs_messages as m
        where m.queue_id = levels.queue_id and m.attempts < m.max_attempts and m.priority < levels.priority
        order by m.priority desc limit 1
    ), levels.place
    from levels
    where levels.priority is not null

-- name: pick_messages
-- The heads of the ranges, in order: by priority, then by how long they have been visible. Nothing is sorted:
-- the order by inside the recursion makes SQLite take the highest priority next, across all queues; those of one
-- priority in the order given. (The limit is there because SQLite 3.40 forgets an order by without one.)
with recursive
{include _levels}
    order by 2 desc, 3 limit 1000000
)
select m.message_id, m.queue_id, m.leased_by, {seconds {now} since m.visible_after} as waited
from levels
cross join pgqrs_messages as m
where m.queue_id = levels.queue_id
  and m.priority = levels.priority
  and m.attempts < m.max_attempts
  and m.visible_after <= {now}
limit :batch;

-- name: take_messages
-- The token is greater than any that this message had, and a time: should the database be set back (a backup, a standby
-- that had not received everything), nobody gets the token of a lease that somebody else still believes in.
update pgqrs_messages
set visible_after = (
        select {after queues.lease_seconds} from {rows queues: queue_id id, lease_seconds seconds}
        where queues.queue_id = pgqrs_messages.queue_id
    ),
    attempts = case when attempts < 0 then 1 else attempts + 1 end,
    lease_token = {next_token lease_token},
    leased_by = :worker_id
where message_id {in ids}
returning message_id, queue_id, {text payload}, run_id, priority, visible_after, enqueued_at, attempts, max_attempts, lease_token;

-- name: find_leases
-- What this worker holds: after a lease whose reply was lost, the rows it does not know of.
with recursive
{include _levels}
)
select m.message_id, m.queue_id, {text m.payload}, m.run_id, m.priority, m.visible_after, m.enqueued_at, m.attempts,
    m.max_attempts, m.lease_token
from levels
cross join pgqrs_messages as m
where m.queue_id = levels.queue_id
  and m.priority = levels.priority
  and m.attempts < m.max_attempts
  and m.visible_after > {now}
  and m.leased_by = :worker_id
union all
select m.message_id, m.queue_id, {text m.payload}, m.run_id, m.priority, m.visible_after, m.enqueued_at, m.attempts,
    m.max_attempts, m.lease_token
from {rows queues: queue_id id}
cross join pgqrs_messages as m
where m.queue_id = queues.queue_id
  and m.attempts >= m.max_attempts
  and m.visible_after > {now}
  and m.leased_by = :worker_id;

-- name: next_due
-- Seconds until something becomes visible, looking at the 100 highest priorities; null when nothing will.
with recursive
{include _levels}
)
select min({seconds due.visible_after since {now}})
from (
    select (
        select m.visible_after from pgqrs_messages as m
        where m.queue_id = levels.queue_id and m.priority = levels.priority and m.attempts < m.max_attempts
        order by m.visible_after limit 1
    ) as visible_after
    from levels
    limit 100
) as due;

-- name: is_visible
-- A run that has ended has no message: whoever waits for it must look, too.
select count(*) = 0 from pgqrs_messages
where run_id = :run_id and visible_after > {now};

-- name: copy_to_archive
insert into pgqrs_archived_messages
    (message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, archived_by, archived_at)
select m.message_id, m.queue_id, m.payload, m.priority, m.enqueued_at, m.attempts, m.lease_token, m.leased_by, {now}
from {rows given: id id, token id}
cross join pgqrs_messages as m
where m.message_id = given.id
  and m.lease_token = given.token
  and m.leased_by is not null
returning message_id;

-- name: remove_messages
delete from pgqrs_messages
where message_id {in ids};

-- name: find_archived
-- Those of the given that were archived under the very token given.
select a.message_id
from {rows given: id id, token id}
cross join pgqrs_archived_messages as a
where a.message_id = given.id
  and a.lease_token = given.token;

-- name: delete_messages
delete from pgqrs_messages
where message_id in (
    select m.message_id
    from {rows given: id id, token id}
    cross join pgqrs_messages as m
    where m.message_id = given.id
      and m.lease_token = given.token
      and m.leased_by is not null
)
returning message_id;

-- name: find_messages
select message_id from pgqrs_messages
where message_id {in ids};

-- name: _extended
update pgqrs_messages
set visible_after = {after given.seconds}
from {rows given: id id, token id, seconds seconds}
where message_id = given.id
  and lease_token = given.token
  and leased_by is not null
returning message_id

-- name: extend_leases
{include _extended};

-- name: renew_leases
-- As extend_leases, and never waits: on PostgreSQL it passes over locked rows.
{include _extended};

-- name: find_held
-- Whose lease is still the given one, locked or not.
select m.message_id
from {rows given: id id, token id}
cross join pgqrs_messages as m
where m.message_id = given.id
  and m.lease_token = given.token
  and m.leased_by is not null;

-- name: release_messages
-- Hands back. give_back is 1 when the attempt shall not count.
update pgqrs_messages
set visible_after = {after :delay},
    leased_by = null,
    attempts = attempts - :give_back
from {rows given: id id, token id}
where message_id = given.id
  and lease_token = given.token
  and leased_by is not null
returning message_id;

-- name: hand_back
-- Each visible again after its own time, with as many attempts as are to count; a dead letter has had them all.
update pgqrs_messages
set visible_after = {after given.seconds},
    leased_by = null,
    attempts = given.attempts
from {rows given: id id, token id, seconds seconds, attempts int}
where message_id = given.id
  and lease_token = given.token
  and leased_by is not null
returning message_id;

-- name: find_released
select m.message_id
from {rows given: id id, token id}
cross join pgqrs_messages as m
where m.message_id = given.id
  and m.lease_token = given.token
  and m.leased_by is null;

-- name: release_worker_messages
-- All that one worker holds comes back at once, without counting the attempt.
update pgqrs_messages
set visible_after = {now},
    leased_by = null,
    attempts = case when attempts > 0 then attempts - 1 else 0 end
where leased_by = :worker_id
  and visible_after > {now};

-- name: dead_letters
select message_id, queue_id, substr({text payload}, 1, :cut), priority, attempts, max_attempts, enqueued_at, visible_after
from pgqrs_messages
where queue_id = :queue_id
  and attempts >= max_attempts
  and visible_after <= {now}
  and (visible_after, message_id) > (:after_time, :after_id)
order by visible_after, message_id
limit :most;

-- name: replay
-- Dead letters start anew. The token stays: it grows at the next lease.
update pgqrs_messages
set attempts = 0,
    visible_after = {now},
    leased_by = null
where queue_id = :queue_id
  and attempts >= max_attempts
  and visible_after <= {now}
  and message_id {in ids};

-- name: purge_messages
delete from pgqrs_messages
where message_id in (
    select message_id from (
        select message_id from pgqrs_messages where queue_id = :queue_id and attempts < max_attempts
      union all
        select message_id from pgqrs_messages where queue_id = :queue_id and attempts >= max_attempts
    ) as live
    limit :batch
);

-- name: purge_archived
delete from pgqrs_archived_messages
where message_id in (
    select message_id from pgqrs_archived_messages
    where queue_id = :queue_id
    limit :batch
);
