-- What only a server can be asked.

-- name: server
select
    current_setting('server_version'),
    current_setting('server_version_num')::integer,
    current_setting('fsync') = 'on',
    current_setting('synchronous_commit') <> 'off',
    current_setting('full_page_writes') = 'on',
    current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on',
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer,
    (select count(*) from pg_catalog.pg_stat_activity where backend_type = 'client backend'),
    pg_is_in_recovery(),
    extract(epoch from clock_timestamp())::float8;

-- name: line
-- Of this very connection: encrypted or not, and to which address.
select
    coalesce((select ssl from pg_catalog.pg_stat_ssl where pid = pg_backend_pid()), false),
    coalesce(host(inet_server_addr()), '');

-- name: dead_rows
select s.relname, s.n_live_tup, s.n_dead_tup, coalesce(c.reloptions::text, '')
from pg_catalog.pg_stat_user_tables as s
join pg_catalog.pg_class as c on c.oid = s.relid
where s.schemaname = :schema
  and s.relname like 'pgqrs\_%'
order by s.n_dead_tup desc;

-- name: oldest_transaction
-- What it sees cannot be cleaned up, in no table of this database.
select pid, coalesce(application_name, ''), state, extract(epoch from clock_timestamp() - xact_start)::float8
from pg_catalog.pg_stat_activity
where datname = current_database()
  and backend_type = 'client backend'
  and pid <> pg_backend_pid()
  and xact_start is not null
  and (backend_xmin is not null or backend_xid is not null)
order by xact_start
limit 1;

-- name: oldest_prepared
select gid, extract(epoch from clock_timestamp() - prepared)::float8
from pg_catalog.pg_prepared_xacts
where database = current_database()
order by prepared
limit 1;

-- name: tables_named
select tablename from pg_catalog.pg_tables
where schemaname = :schema
  and tablename in ('old_pgqrs_workflows', 'old_pgqrs_workflow_steps')
order by tablename;
