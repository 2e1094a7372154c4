-- name: database_bytes
select sum(pg_total_relation_size(c.oid))::bigint
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = :schema and c.relkind = 'r' and c.relname like 'pgqrs\_%';
