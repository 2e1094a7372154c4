-- name: _picked
-- Finds the heads, locks them, passes over what others have locked. Each lateral reads one index range (queue,
-- priority, visible_after <= now) and stops when it has enough.
with recursive levels (priority) as (
    select max(top.priority)
    from pgqrs_queues as q
    cross join lateral (
        select m.priority from pgqrs_messages as m
        where m.queue_id = q.queue_id and m.attempts < m.max_attempts
        order by m.priority desc limit 1
    ) as top
    where q.queue_id {in queue_ids} and q.paused_at is null
  union all
    select (
        select max(top.priority)
        from pgqrs_queues as q
        cross join lateral (
            select m.priority from pgqrs_messages as m
            where m.queue_id = q.queue_id and m.attempts < m.max_attempts and m.priority < levels.priority
            order by m.priority desc limit 1
        ) as top
        where q.queue_id {in queue_ids} and q.paused_at is null
    )
    from levels
    where levels.priority is not null
),
picked as materialized (
    select ready.*
    from levels
    cross join lateral (
        select due.*
        -- In the order given: where that changes from lease to lease, no queue waits for ever behind another. (offset 0:
        -- joined as equals, a planner that knows how few queues there are would read them by their ids.)
        from {rows queues: queue_id id, lease_seconds seconds, most int}
        cross join lateral (
            select 1 from pgqrs_queues as q
            where q.queue_id = queues.queue_id and q.paused_at is null
            offset 0
        ) as working
        cross join lateral (
            select m.ctid as place, m.queue_id, m.visible_after as due_at, m.message_id, m.leased_by
            from pgqrs_messages as m
            where m.queue_id = queues.queue_id
              and m.priority = levels.priority
              and m.attempts < m.max_attempts
              and m.visible_after <= {now}
            order by m.visible_after, m.message_id
            limit least(:batch::bigint, queues.most)
            {skip_locked}
        ) as due
        -- Kept whole: flattened, the planner may put the queues outside and the priorities inside.
        offset 0
    ) as ready
    limit :batch::bigint
)

-- name: _taken
    -- Below 0 by hand: it would never be used up.
    attempts = case when m.attempts < 0 then 1 else m.attempts + 1 end,
    lease_token = {next_token m.lease_token},
    leased_by = :worker_id

-- name: _lease
m.message_id, m.queue_id, {text m.payload}, m.run_id, m.priority, m.visible_after, m.enqueued_at, m.attempts,
    m.max_attempts, m.lease_token

-- name: lease_messages
-- One round trip: find, lock, take.
{include _picked}
update pgqrs_messages as m
set visible_after = {after queues.lease_seconds},
{include _taken}
from picked
cross join {rows queues: queue_id id, lease_seconds seconds, most int}
-- The rows are locked, so their place in the table is a name that costs no index look-up.
where m.ctid = picked.place
  and queues.queue_id = picked.queue_id
returning {include _lease}, picked.leased_by, picked.due_at;

-- name: _allowed
-- At most so many of each queue: they come by priority, so the first of each are those.
allowed as (
    select picked.place, picked.due_at, picked.leased_by, queues.lease_seconds
    from (
        select numbered.*, row_number() over (partition by queue_id order by number) as nth
        from (select picked.*, row_number() over () as number from picked) as numbered
    ) as picked
    cross join {rows queues: queue_id id, lease_seconds seconds, most int}
    where queues.queue_id = picked.queue_id
      and picked.nth <= queues.most
)

-- name: lease_limited_messages
-- As lease_messages, within the limits.
{include _picked},
{include _allowed}
update pgqrs_messages as m
set visible_after = {after allowed.lease_seconds},
{include _taken}
from allowed
where m.ctid = allowed.place
returning {include _lease}, allowed.leased_by, allowed.due_at;

-- name: archive_messages
-- Moves: out of the hot table, into the archive, in one statement.
with gone as (
    delete from pgqrs_messages as m
    using {rows given: id id, token id}
    where m.message_id = given.id
      and m.lease_token = given.token
      and m.leased_by is not null
    returning m.*
)
insert into pgqrs_archived_messages
    (message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, archived_by, archived_at)
select message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, leased_by, {now}
from gone
returning message_id;

-- name: delete_messages
delete from pgqrs_messages as m
using {rows given: id id, token id}
where m.message_id = given.id
  and m.lease_token = given.token
  and m.leased_by is not null
returning m.message_id;

-- name: _settled
-- What was done goes: into the archive, or (keep is false) nowhere.
gone as (
    delete from pgqrs_messages as m
    using {rows done: id id, token id}
    where m.message_id = done.id
      and m.lease_token = done.token
      and m.leased_by is not null
    returning m.message_id, m.queue_id, m.payload, m.priority, m.enqueued_at, m.attempts, m.lease_token, m.leased_by
),
kept as (
    insert into pgqrs_archived_messages
        (message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, archived_by, archived_at)
    select message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, leased_by, {now}
    from gone
    where :keep::boolean
),

-- name: _not_settled
-- A lease that ran out is visible again, and what was done under it goes in this very statement: no second lease.
(m.leased_by is null or m.message_id <> all (array(select gone.message_id from gone)))

-- name: _turned
-- The rows are locked, so their place in the table is a name that costs no index look-up.
taken as (
    update pgqrs_messages as m
    set visible_after = {after :lease_seconds},
{include _taken}
    from picked
    where m.ctid = picked.place
    returning {include _lease}, picked.leased_by as taken_from, picked.due_at
)
select * from taken
union all
select null, count(*), null, null, null, null, null, null, null, null, null, null from gone

-- name: settle_and_lease
-- One round trip: archives what is done and leases the next. The last row tells how many were settled (queue_id).
with recursive
{include _settled}
levels (priority) as (
    select (
        select m.priority from pgqrs_messages as m
        where m.queue_id = q.queue_id and m.attempts < m.max_attempts
        order by m.priority desc limit 1
    )
    from pgqrs_queues as q
    where q.queue_id = :queue_id and q.paused_at is null
  union all
    select (
        select m.priority from pgqrs_messages as m
        where m.queue_id = :queue_id and m.attempts < m.max_attempts and m.priority < levels.priority
        order by m.priority desc limit 1
    )
    from levels
    where levels.priority is not null
),
picked as materialized (
    select due.*
    from levels
    cross join lateral (
        select m.ctid as place, m.visible_after as due_at, m.leased_by
        from pgqrs_messages as m
        where m.queue_id = :queue_id
          and m.priority = levels.priority
          and m.attempts < m.max_attempts
          and m.visible_after <= {now}
          and {include _not_settled}
        order by m.visible_after, m.message_id
        limit :batch::bigint
        {skip_locked}
    ) as due
    limit :batch::bigint
),
{include _turned};

-- name: settle_and_lease_in_bands
-- As settle_and_lease, reading only what has been visible since a given time: nothing that is gone is walked again.
-- Of a band of several priorities the highest in use is read.
with
{include _settled}
picked as materialized (
    select due.*
    from {rows bands: lowest int, highest int, since time}
    cross join pgqrs_queues as q
    cross join lateral (
        select case when bands.lowest = bands.highest then bands.lowest else (
            select m.priority from pgqrs_messages as m
            where m.queue_id = q.queue_id
              and m.attempts < m.max_attempts
              and m.priority between bands.lowest and bands.highest
            order by m.priority desc limit 1
        ) end as priority
        offset 0
    ) as level
    cross join lateral (
        select m.ctid as place, m.visible_after as due_at, m.leased_by
        from pgqrs_messages as m
        where m.queue_id = q.queue_id
          and m.priority = level.priority
          and m.attempts < m.max_attempts
          and m.visible_after >= bands.since
          and m.visible_after <= {now}
          and {include _not_settled}
        order by m.visible_after, m.message_id
        limit :batch::bigint
        {skip_locked}
    ) as due
    where q.queue_id = :queue_id and q.paused_at is null
    limit :batch::bigint
),
{include _turned};

-- name: renew_leases
with free as (
    select m.message_id, given.seconds
    from {rows given: id id, token id, seconds seconds}
    cross join pgqrs_messages as m
    where m.message_id = given.id
      and m.lease_token = given.token
      and m.leased_by is not null
    for update of m skip locked
)
update pgqrs_messages as m
set visible_after = {after free.seconds}
from free
where m.message_id = free.message_id
returning m.message_id;
