-- name: unfinished_indexes
-- What a `create index concurrently` leaves behind when it is killed.
select c.relname
from pg_catalog.pg_index as i
join pg_catalog.pg_class as c on c.oid = i.indexrelid
join pg_catalog.pg_class as t on t.oid = i.indrelid
join pg_catalog.pg_namespace as n on n.oid = t.relnamespace
where n.nspname = :schema
  and t.relname like 'pgqrs\_%'
  and not (i.indisvalid and i.indisready)
limit :most;

-- name: amcheck
-- Where the extension is that compares indexes with their tables; no row when it is not installed.
select n.nspname
from pg_catalog.pg_extension as e
join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
where e.extname = 'amcheck';

-- name: btrees
select c.oid::bigint, c.relname
from pg_catalog.pg_index as i
join pg_catalog.pg_class as c on c.oid = i.indexrelid
join pg_catalog.pg_class as t on t.oid = i.indrelid
join pg_catalog.pg_namespace as n on n.oid = t.relnamespace
join pg_catalog.pg_am as a on a.oid = c.relam
where n.nspname = :schema
  and t.relname like 'pgqrs\_%'
  and a.amname = 'btree'
  and i.indisvalid
order by c.relname;

-- name: check_btree
-- Raises when the index is not what its table says. `its_schema` stands for the extension's.
select its_schema.bt_index_check(cast(:index as bigint)::regclass);
