\set first :first + 100
delete from jobs where id > :client_id * 200000 + :first - 100 and id <= :client_id * 200000 + :first;
