-- A file that was promoted: its tables have other names, so that nobody who still has it open can read or write them.

-- name: find_seal
-- No migration will ever have this version. Code that knows nothing of seals takes the schema for a newer one, and
-- refuses it too.
select name from pgqrs_migrations
where version = 1000000;

-- name: write_seal
insert into pgqrs_migrations (version, name, applied_at)
values (1000000, :seal, {now});

-- name: rename_table
-- Both names are put in: a name cannot be bound. Indexes and references follow by themselves.
alter table a_table rename to another_table;
