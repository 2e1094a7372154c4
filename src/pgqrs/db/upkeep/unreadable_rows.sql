-- Rows that cannot be read as the schema has them. The words a_table, a_column, a_key, the_rows, its_counts, is_wrong and
-- instead stand for names and conditions out of our own catalogue; they are put in, as names cannot be bound.

-- name: count_wrong
select its_counts from the_rows;

-- name: name_wrong
select t.a_key from the_rows where is_wrong order by 1 limit 5;

-- name: every_row
(select * from a_table) as t;

-- name: newest_rows
(select * from a_table order by a_key desc limit 1000) as t;

-- name: fix_wrong
update a_table set a_column = instead where is_wrong;

-- name: delete_wrong
delete from a_table where is_wrong;

-- name: counted
count(case when is_wrong then 1 end);

-- name: wrong_time
-- Python has datetimes for the years 1 to 9999.
(typeof(t.a_column) not in ('integer', 'null') or t.a_column not between -62135596800000000 and 253402300799999999);

-- name: wrong_id
typeof(t.a_column) not in ('integer', 'null');

-- name: wrong_integer
-- As PostgreSQL has them.
(typeof(t.a_column) not in ('integer', 'null') or t.a_column not between -2147483648 and 2147483647);

-- name: wrong_number
(typeof(t.a_column) not in ('real', 'integer', 'null') or abs(t.a_column) > 1e300);

-- name: wrong_text
-- A NUL is nothing that PostgreSQL can hold.
(typeof(t.a_column) not in ('text', 'null') or instr(t.a_column, char(0)) > 0);

-- name: wrong_json
-- Of a null, json_valid says 0 before SQLite 3.45.
(
    t.a_column is not null
    and (typeof(t.a_column) <> 'text' or not json_valid(t.a_column) or instr(t.a_column, char(0)) > 0)
);

-- name: wrong_parent
-- A child is younger than its parent: anything else is a circle, or leads into one.
(typeof(t.a_column) not in ('integer', 'null') or t.a_column >= t.run_id);

-- name: instead_time
cast(strftime('%s', 'now') as integer) * 1000000;

-- name: instead_id
0;

-- name: instead_integer
1;

-- name: instead_number
0;

-- name: instead_text
-- Names are unique.
'unreadable-' || rowid;

-- name: instead_json
'{}';

-- name: instead_parent
null;
