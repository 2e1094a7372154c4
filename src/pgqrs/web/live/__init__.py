"""Pages that follow: one question to the store for all listeners, sent as server-sent events."""
