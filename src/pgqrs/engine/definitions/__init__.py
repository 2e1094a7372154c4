"""Workflow functions, read once: their parameters, the binding of a run's input, the schema of that input."""
