-- What is in a queue, looked at and not taken: in the order in which it would be leased, then what is exhausted.

-- name: _columns
m.message_id,
    substr({text m.payload}, 1, :cut),
    m.run_id,
    m.priority,
    case
        when m.visible_after > {now} and m.leased_by is not null then 'leased'
        when m.visible_after > {now} then 'scheduled'
        when m.attempts >= m.max_attempts then 'dead'
        else 'ready'
    end,
    m.visible_after,
    m.enqueued_at,
    m.attempts,
    m.max_attempts,
    m.lease_token,
    m.leased_by

-- name: of_same_priority
-- Those that follow one of the same priority.
select
    {include _columns}
from pgqrs_messages as m
where m.queue_id = :queue_id
  and m.attempts < m.max_attempts
  and m.priority = :priority
  and m.visible_after >= :visible_after
  and (m.visible_after > :visible_after or m.message_id > :message_id)
order by m.visible_after, m.message_id
limit :most;

-- name: of_lower_priority
select
    {include _columns}
from pgqrs_messages as m
where m.queue_id = :queue_id
  and m.attempts < m.max_attempts
  and m.priority < cast(:priority as bigint)
order by m.priority desc, m.visible_after, m.message_id
limit :most;

-- name: exhausted
-- In their last lease, or dead.
select
    {include _columns}
from pgqrs_messages as m
where m.queue_id = :queue_id
  and m.attempts >= m.max_attempts
  and m.visible_after >= :visible_after
  and (m.visible_after > :visible_after or m.message_id > :message_id)
order by m.visible_after, m.message_id
limit :most;
