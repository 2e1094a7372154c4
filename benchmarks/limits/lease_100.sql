update jobs set attempts = 1, visible_after = now() + interval '30 seconds'
where id = any(array(select id from jobs where attempts = 0 order by id limit 100 for update skip locked))
returning id, payload;
