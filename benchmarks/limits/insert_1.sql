insert into jobs (payload) values ('{"n": 1}');
