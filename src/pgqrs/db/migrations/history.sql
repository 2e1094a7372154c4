-- name: create_history
-- Which migrations have been applied; the first statement ever run here.
create table if not exists pgqrs_migrations (
    version integer primary key,
    name text not null,
    applied_at {time} not null
);

-- name: applied_version
-- Beyond that are seals, below 1 what else is to be remembered of this schema (db/upkeep/promotion_seal.sql, db/upkeep/promotion.sql).
select coalesce(max(version), 0) from pgqrs_migrations
where version between 1 and 999999;

-- name: record_migration
insert into pgqrs_migrations (version, name, applied_at)
values (:version, :name, {now});

-- name: history_exists
select count(*) from sqlite_master
where type = 'table' and name = 'pgqrs_migrations';

-- name: columns
-- Every column of our tables, whatever its type.
select t.name as table_name, c.name as column_name
from sqlite_master as t, pragma_table_info(t.name) as c
where t.type = 'table' and t.name like 'pgqrs\_%' escape '\'
order by 1, 2;

-- name: indexes
select name as index_name from sqlite_master
where type = 'index' and name like 'pgqrs\_%' escape '\'
order by 1;
