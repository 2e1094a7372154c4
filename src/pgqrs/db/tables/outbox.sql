-- name: _open
o.published_at is null
  and o.dead_at is null

-- name: _is_open
-- The same, for rows that are found by their id: written so, it is no reason to read an index of open events.
coalesce(published_at, dead_at) is null

-- name: _is_head
-- The order by picks the index: to a planner without statistics all indexes of open events look the same.
o.event_id = (
      select first.event_id
      from pgqrs_outbox_events as first
      where first.aggregate_id = o.aggregate_id
        and first.published_at is null
        and first.dead_at is null
      order by first.aggregate_id, first.event_id
      limit 1
  )

-- name: _columns
o.event_id, o.event_uuid, o.aggregate_id, o.workflow, o.event_type, {text o.payload}, o.created_at, o.attempts,
    o.last_error, o.published_at, o.dead_at, o.lease_token

-- name: _shown
o.event_id, o.event_uuid, o.aggregate_id, o.workflow, o.event_type, substr({text o.payload}, 1, :cut), o.created_at,
    o.attempts, substr(o.last_error, 1, :cut), o.published_at, o.dead_at, o.lease_token

-- name: look
-- The head of the line: so many events that are visible, and of each whether its run has none before it.
-- Never more than :most, however many wait behind others of their run.
select o.event_id, o.aggregate_id, o.event_type, {include _is_head} as is_head
from pgqrs_outbox_events as o
where {include _open}
  and o.visible_after <= {now}
order by o.visible_after, o.event_id
limit :most;

-- name: claim_events
-- Whether each may be claimed is asked once more: somebody else has looked, too.
update pgqrs_outbox_events
set visible_after = {after :lease_seconds},
    lease_token = :token
where event_id in (
    select o.event_id
    from pgqrs_outbox_events as o
    where o.event_id {in ids}
      and {include _is_open}
      and o.visible_after <= {now}
      and {include _is_head}
    {skip_locked}
)
returning event_id;

-- name: events_held
select {include _columns}
from pgqrs_outbox_events as o
where o.event_id {in ids}
  and o.lease_token = :token
  and {include _is_open};

-- name: mark_published
update pgqrs_outbox_events
set published_at = {now},
    last_error = null
where event_id = :event_id
  and lease_token = :token
  and {include _is_open};

-- name: mark_failed
-- The token turns negative: given up by that very holder, so that a repeated call is known for what it is.
update pgqrs_outbox_events
set attempts = case when attempts < 0 then 1 when attempts < 2147483647 then attempts + 1 else attempts end,
    last_error = :error,
    visible_after = {after :delay},
    dead_at = case when attempts >= :max_attempts - 1 then {now} end,
    lease_token = -lease_token
where event_id = :event_id
  and lease_token = :token
  and {include _is_open};

-- name: give_back
update pgqrs_outbox_events
set visible_after = {now},
    lease_token = -lease_token
where event_id = :event_id
  and lease_token = :token
  and {include _is_open};

-- name: how_it_stands
select lease_token, published_at, dead_at
from pgqrs_outbox_events
where event_id = :event_id;

-- name: push_later
-- What waits behind a failed event leaves the range that dispatchers read. A thousand: one transaction stays short,
-- and more of one run are set aside when they are in the way.
update pgqrs_outbox_events
set visible_after = {after :delay}
where event_id in (
    select o.event_id
    from pgqrs_outbox_events as o
    where o.aggregate_id = :run_id
      and o.event_id > :event_id
      and {include _open}
    order by o.aggregate_id, o.event_id
    limit 1000
);

-- name: pull_next
-- The run's next event, if it was pushed or set aside, back to its old place in the line: before its successors.
-- One that somebody holds stays as it is.
update pgqrs_outbox_events
set visible_after = created_at
where event_id = (
    select o.event_id
    from pgqrs_outbox_events as o
    where o.aggregate_id = :run_id
      and {include _open}
    order by o.aggregate_id, o.event_id
    limit 1
)
  and visible_after > {now}
  and lease_token <= 0;

-- name: set_aside
-- Out of the way of others, for a while; nothing that somebody has claimed meanwhile.
update pgqrs_outbox_events
set visible_after = {after :seconds}
where event_id in (
    select o.event_id
    from pgqrs_outbox_events as o
    where o.event_id {in ids}
      and {include _is_open}
      and o.visible_after <= {now}
    {skip_locked}
);

-- name: next_due
-- Seconds until something becomes visible that is not yet.
select {seconds o.visible_after since {now}}
from pgqrs_outbox_events as o
where {include _open}
  and o.visible_after > {now}
order by o.visible_after
limit 1;

-- name: count_events
select
    (select count(*) from pgqrs_outbox_events as o where {include _open}),
    (select count(*) from pgqrs_outbox_events as o where {include _open} and o.attempts > 0),
    (select count(*) from pgqrs_outbox_events as o where o.dead_at is not null),
    (select count(*) from pgqrs_outbox_events as o where o.published_at is not null),
    (select max({seconds {now} since o.created_at}) from pgqrs_outbox_events as o where {include _open});

-- name: list_unpublished
-- By run, in its order: the one order that does not change while one pages through.
select {include _shown}
from pgqrs_outbox_events as o
where {include _open}
  and (o.aggregate_id, o.event_id) > (:after_run, :after_id)
order by o.aggregate_id, o.event_id
limit :most;

-- name: list_dead
select {include _shown}
from pgqrs_outbox_events as o
where o.dead_at is not null
  and (o.dead_at, o.event_id) > (:after_time, :after_id)
order by o.dead_at, o.event_id
limit :most;

-- name: replay_events
update pgqrs_outbox_events
set dead_at = null,
    attempts = 0,
    visible_after = {now},
    lease_token = 0
where event_id {in ids}
  and dead_at is not null;
