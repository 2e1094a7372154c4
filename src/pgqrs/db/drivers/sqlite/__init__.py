"""SQLite through `sqlite3`: the writer thread, sessions, the file, commits of other processes."""
