"""An installed schema of PostgreSQL made as empty as it was: rows are deleted, and ids begin anew.

By DELETE as long as a table is small: TRUNCATE makes every table and index a new file, which takes ten times as long.
"""

from __future__ import annotations

# Beyond this dead rows would begin to matter.
MOST_BYTES = 256 * 1024


def emptied(schema: str) -> str:
    """The statement; for whoever may switch off foreign keys, as the order of tables does not matter then."""
    return f"""
do $$
declare each record;
begin
    set local session_replication_role = replica;
    for each in
        select oid::regclass as name, relkind as kind, pg_relation_size(oid) as size from pg_class
        where relnamespace = '"{schema}"'::regnamespace and relname <> 'pgqrs_migrations'
          and (relkind = 'S' or relkind = 'r' and pg_relation_size(oid) > 0)
    loop
        if each.kind = 'S' then
            perform setval(each.name, 1, false);
        elsif each.size > {MOST_BYTES} then
            execute format('truncate %s cascade', each.name);
        else
            execute format('delete from %s', each.name);
        end if;
    end loop;
end $$
"""
