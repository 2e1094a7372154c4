"""The verbs of `ctx`: steps, transactions, waits, children, progress, logs; for async and plain handlers."""
