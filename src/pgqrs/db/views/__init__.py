"""Read-only questions about runs, queues and workers: for lists, pages, metrics and tests."""
