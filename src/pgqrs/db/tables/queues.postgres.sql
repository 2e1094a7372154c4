-- name: lock_queue
select queue_id from pgqrs_queues
where name = :name
for update;
