-- name: create_queue
-- Creates the queue, or finds the one that is there.
insert into pgqrs_queues (name, created_at)
values (:name, {now})
on conflict (name) do nothing;

-- name: get_queue
select queue_id, name, created_at, paused_at
from pgqrs_queues
where name = :name;

-- name: list_queues
select queue_id, name, created_at, paused_at
from pgqrs_queues
order by {by name};

-- name: queues_page
select queue_id, name, created_at, paused_at
from pgqrs_queues
where {by name} > :after
order by {by name}
limit :most;

-- name: pause_queue
-- Keeps the time of the first pause.
update pgqrs_queues
set paused_at = coalesce(paused_at, {now})
where name = :name;

-- name: resume_queue
update pgqrs_queues
set paused_at = null
where name = :name;

-- name: lock_queue
-- From here on nobody can enqueue until this transaction ends.
select queue_id from pgqrs_queues
where name = :name;

-- name: workflow_of_queue
select name from pgqrs_workflows
where queue_id = :queue_id;

-- name: count_messages_of_queue
select
    (select count(*) from pgqrs_messages where queue_id = :queue_id and attempts < max_attempts)
    + (select count(*) from pgqrs_messages where queue_id = :queue_id and attempts >= max_attempts);

-- name: delete_messages_of_queue
delete from pgqrs_messages
where queue_id = :queue_id;

-- name: delete_archived_messages_of_queue
delete from pgqrs_archived_messages
where queue_id = :queue_id;

-- name: delete_workers_of_queue
delete from pgqrs_workers
where queue_id = :queue_id;

-- name: delete_queue
delete from pgqrs_queues
where queue_id = :queue_id;

-- name: queue_counts
-- Everything that is live in a queue, by what it is doing.
select
    count(case when attempts < max_attempts and visible_after <= {now} then 1 end),
    count(case when leased_by is null and visible_after > {now} then 1 end),
    count(case when leased_by is not null and visible_after > {now} then 1 end),
    count(case when attempts >= max_attempts and visible_after <= {now} then 1 end),
    max(case when attempts < max_attempts and visible_after <= {now} then {seconds {now} since visible_after} end)
from (
    -- Two halves, as there is an index for each and none for both.
    select attempts, max_attempts, visible_after, leased_by
    from pgqrs_messages
    where queue_id = :queue_id and attempts < max_attempts
  union all
    select attempts, max_attempts, visible_after, leased_by
    from pgqrs_messages
    where queue_id = :queue_id and attempts >= max_attempts
) as live;

-- name: count_archived
select count(*) from pgqrs_archived_messages
where queue_id = :queue_id;
