"""One module and one .sql file per table: bind, decode, nothing else."""
