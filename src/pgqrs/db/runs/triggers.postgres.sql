-- name: trigger_runs
-- insert_runs, insert_run_messages and the event of their creation in one statement.
with made as (
    insert into pgqrs_workflow_runs
        (workflow_id, status, input, created_at, updated_at, max_attempts, priority, parent_run_id, attributes,
         dead_letter_of, headers, idempotency_key)
    select :workflow_id::bigint, 'PENDING', given.input, {now}, {now}, :max_attempts::integer, :priority::integer,
        :parent_run_id::bigint, {as_json :attributes}, :dead_letter_of::bigint, {as_json :headers}, given.key
    from {rows given: input json, key text}
    order by given.position
    on conflict (idempotency_key) where idempotency_key is not null and deleted_at is null do nothing
    returning run_id, idempotency_key
),
sent as (
    insert into pgqrs_messages (queue_id, payload, run_id, priority, visible_after, enqueued_at, max_attempts)
    select :queue_id::bigint, cast('{"run_id": ' || run_id || '}' as json), run_id, :priority::integer,
        coalesce(:run_at::timestamptz, {after :delay}), {now}, :max_attempts::integer
    from made
),
told as (
    insert into pgqrs_workflow_events (run_id, event_type, data, actor, created_at)
    select run_id, 'created', {as_json :created}, :actor::text, {now}
    from made
    where :tells::boolean
)
select run_id, idempotency_key
from made;
