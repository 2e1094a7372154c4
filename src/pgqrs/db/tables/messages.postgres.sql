-- name: lease_messages
-- One round trip: find the heads, lock them, pass over what others have locked, take them.
-- Each lateral reads one index range (queue, priority, visible_after <= now) and stops when it has enough.
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
        from pgqrs_queues as q
        cross join lateral (
            select m.ctid as place, m.visible_after as due_at, m.message_id
            from pgqrs_messages as m
            where m.queue_id = q.queue_id
              and m.priority = levels.priority
              and m.attempts < m.max_attempts
              and m.visible_after <= {now}
            order by m.visible_after, m.message_id
            limit :batch
            {skip_locked}
        ) as due
        where q.queue_id {in queue_ids} and q.paused_at is null
        -- Kept whole: flattened, the planner may put the queues outside and the priorities inside.
        offset 0
    ) as ready
    limit :batch
)
update pgqrs_messages as m
set visible_after = {after :lease_seconds},
    attempts = m.attempts + 1,
    lease_token = m.lease_token + 1,
    leased_by = :worker_id
from picked
-- The rows are locked, so their place in the table is a name that costs no index look-up.
where m.ctid = picked.place
returning m.message_id, m.queue_id, {text m.payload}, m.run_id, m.priority, m.visible_after, m.enqueued_at, m.attempts,
    m.max_attempts, m.lease_token, picked.due_at;

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
