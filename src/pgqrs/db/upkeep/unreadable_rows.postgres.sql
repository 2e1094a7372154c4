-- The server keeps to the types: what is left are times, and numbers without an end.

-- name: wrong_time
t.a_column not between timestamptz '0001-01-01 UTC' and timestamptz '9999-12-31 23:59:59.999999 UTC';

-- name: wrong_id
false;

-- name: wrong_integer
false;

-- name: wrong_number
abs(t.a_column) > 1e300;

-- name: wrong_text
false;

-- name: wrong_json
false;

-- name: wrong_parent
t.a_column >= t.run_id;

-- name: instead_time
now();
