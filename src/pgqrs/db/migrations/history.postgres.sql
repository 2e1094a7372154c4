-- name: lock_migrations
-- One migrator at a time: CREATE ... IF NOT EXISTS alone fails when several try it together.
select pg_advisory_xact_lock(hashtextextended('pgqrs migrations ' || :schema::text, 0));

-- name: history_exists
select count(*) from pg_catalog.pg_tables
where schemaname = :schema and tablename = 'pgqrs_migrations';

-- name: schema_exists
select count(*) from pg_catalog.pg_namespace
where nspname = :schema;

-- name: columns
select c.relname as table_name, a.attname as column_name
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_attribute a on a.attrelid = c.oid
where n.nspname = :schema
  and c.relkind in ('r', 'p')
  and c.relname like 'pgqrs\_%'
  and a.attnum > 0
  and not a.attisdropped
order by 1, 2;

-- name: indexes
-- An index that a killed CREATE INDEX CONCURRENTLY left behind does not count.
select c.relname as index_name
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_index i on i.indexrelid = c.oid
where n.nspname = :schema
  and c.relname like 'pgqrs\_%'
  and i.indisvalid
order by 1;
