"""What this database and this disk can do at most: the least SQL for the same durability, by pgbench; and fsync."""
