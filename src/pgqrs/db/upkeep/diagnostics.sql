-- What a doctor asks: quick questions, whatever the size of the tables.

-- name: server
-- Of a library in this process there is only its version to know.
select sqlite_version();

-- name: schedules_in_trouble
-- Those whose last look failed, and those that nobody looked at in time.
select name, last_error, {seconds {now} since next_slot_at}
from pgqrs_schedules
where paused_at is null
  and (last_error is not null or next_slot_at < {now})
order by {by name}
limit 100;

-- name: tables_named
-- Tables of the former layout, under the names that their import expects.
select name from sqlite_master
where type = 'table'
  and name in ('old_pgqrs_workflows', 'old_pgqrs_workflow_steps')
order by name;
