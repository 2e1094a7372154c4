-- name: register_worker
insert into pgqrs_workers (queue_id, hostname, port, status, created_at, heartbeat_at, info)
values (:queue_id, :name, :port, 'READY', {now}, {now}, {as_json :info})
returning worker_id;

-- name: heartbeat
-- A worker that was declared stopped stays so: 0 rows tell it.
update pgqrs_workers
set heartbeat_at = {now}
where worker_id = :worker_id
  and status = 'READY';

-- name: stop_worker
update pgqrs_workers
set status = 'STOPPED',
    stopped_at = coalesce(stopped_at, {now})
where worker_id = :worker_id;

-- name: list_workers
-- In the order of their ids, from the one behind :after on. What a worker says of itself comes whole or not at all.
select
    w.worker_id,
    q.name,
    substr(w.hostname, 1, :cut),
    w.port,
    w.status,
    w.created_at,
    w.heartbeat_at,
    w.stopped_at,
    {seconds {now} since w.heartbeat_at},
    coalesce(held.leased, 0),
    case when length({text w.info}) <= :cut then {text w.info} end,
    coalesce(length({text w.info}), 0)
from pgqrs_workers as w
left join pgqrs_queues as q on q.queue_id = w.queue_id
left join (
    select leased_by, count(*) as leased
    from pgqrs_messages
    where leased_by is not null and visible_after > {now}
    group by leased_by
) as held on held.leased_by = w.worker_id
where (cast(:queue_id as bigint) is null or w.queue_id = :queue_id)
  and (cast(:worker_id as bigint) is null or w.worker_id = :worker_id)
  and w.worker_id > :after
order by w.worker_id
limit :most;

-- name: worker_status
select status from pgqrs_workers
where worker_id = :worker_id;
