"""PostgreSQL through asyncpg: pool, session settings, errors, LISTEN/NOTIFY."""
