-- From a file to PostgreSQL. The words a_table, its_columns, their_columns and with_types stand for names out of our own
-- catalogue; they are put in, as names cannot be bound.

-- name: read_table
-- In the order in which the rows were made: a parent comes before its children.
select its_columns
from a_table
order by rowid;

-- name: count_rows
select count(*) from a_table;

-- name: last_ids
-- The highest id that a table ever gave, also to rows that are gone: none is given twice.
select name, seq from sqlite_sequence;

-- name: moment
select {now} as frozen_at;

-- name: held_messages
-- What somebody was at work on when nobody could write any more, nor renew a lease; and for how long that is theirs.
select message_id, run_id, {seconds visible_after since {now}}
from pgqrs_messages
where leased_by is not null
  and visible_after > :frozen_at;

-- name: insert_rows
insert into a_table (its_columns)
select their_columns
from {rows given: with_types}
order by given.position;

-- name: find_origin
-- Version 0: where the rows of this schema came from.
select name from pgqrs_migrations
where version = 0;

-- name: write_origin
insert into pgqrs_migrations (version, name, applied_at)
values (0, :promotion, {now});

-- name: hand_back_messages
-- To nobody, when the lease that somebody has on them would have ended: until then they may be at work on it, whoever
-- they are. The attempt is not counted, as it could not be finished.
update pgqrs_messages
set leased_by = null,
    attempts = case when attempts > 0 then attempts - 1 else 0 end,
    visible_after = {after given.seconds}
from {rows given: id id, seconds seconds}
where message_id = given.id;

-- name: hand_back_runs
update pgqrs_workflow_runs
set status = 'PENDING',
    updated_at = {now}
from {rows given: id id}
where run_id = given.id
  and status = 'RUNNING';

-- name: sign_off_workers
-- They serve the file that the rows come from.
update pgqrs_workers
set status = 'STOPPED',
    stopped_at = {now}
where status = 'READY';
