insert into jobs (payload) select '{"n": 1}' from generate_series(1, 1000);
