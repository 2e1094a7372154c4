insert into steps (run_id, step_id, status, output) select nextval('runs'), 'step', 'SUCCESS', 'null' from generate_series(1, 100);
