"""Our side of the comparison: `python -m benchmarks.scenarios --scenario runs_10 --dsn DSN --count 500`.

Each measurement is a process of its own on a database of its own. It sets up untimed, does the timed part, and prints
one line of JSON. Bodies do nothing. What is done is counted in the database (looking.py), never in a handler.
"""

# Scenario: the module that has a coroutine function of that name.
SCENARIOS = {
    "enqueue_one": "enqueueing",
    "enqueue_many": "enqueueing",
    "producers_100": "enqueueing",
    "drain": "draining",
    "raw_batches": "draining",
    "runs_1": "running",
    "runs_10": "running",
    "fan_out": "running",
    "latency": "latency",
    "audit": "audit",
    "two_workers": "two_workers",
    "backlog": "backlog",
    "finished": "backlog",
    "idle": "idle",
    "memory": "idle",
    "sleeping": "idle",
}
