-- The side that gets the rows.

-- name: column_types
select c.relname, a.attname, format_type(a.atttypid, null), a.attidentity <> ''
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_attribute a on a.attrelid = c.oid
where n.nspname = :schema
  and c.relkind = 'r'
  and c.relname like 'pgqrs\_%'
  and a.attnum > 0
  and not a.attisdropped
order by c.relname, a.attnum;

-- name: lock_table
-- Others may look; whoever wants to write waits until it is all there.
lock table a_table in share row exclusive mode;

-- name: has_rows
select exists (select 1 from a_table);

-- name: look_back
-- Named for the table: else the client would take the rows of one for those of another.
declare a_cursor no scroll cursor for
select its_columns
from a_table;

-- name: next_copied
fetch how_many from a_cursor;

-- name: end_look
close a_cursor;

-- name: set_last_id
select setval(pg_get_serial_sequence(:of_table, :of_column), :last_id);

-- name: analyze_table
-- Else the planner takes it for empty until autovacuum comes by.
analyze a_table;
