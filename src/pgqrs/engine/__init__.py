"""What runs in the background: polling now; workers, leases and commits of workflows on top of it."""
