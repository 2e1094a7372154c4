\set first :first + 100
update jobs set done = true where id > :client_id * 200000 + :first - 100 and id <= :client_id * 200000 + :first;
