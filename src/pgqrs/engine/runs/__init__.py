"""Runs on a worker: lease, execute, commit, settle; and runs that the calling process executes itself."""
