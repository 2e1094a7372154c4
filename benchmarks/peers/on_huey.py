"""huey on SQLite: tasks in a table, taken one by one by threads."""

import threading
import time

import harness
from harness import PAYLOAD, PLAIN_QUEUE, Latencies, Measured, Task, Unsupported
from huey import SqliteHuey

WORKERS = 8
DURABLE = "SqliteHuey(fsync=True): WAL, synchronous=FULL"
stopwatch = harness.Stopwatch()


def opened(task: Task) -> SqliteHuey:
    if not task.is_sqlite:
        raise Unsupported("measured on SQLite only")
    return SqliteHuey("bench", filename=task.path, fsync=True)


def plain_task(huey: SqliteHuey):
    @huey.task()
    def plain(_payload) -> None:
        return

    return plain


def start(huey: SqliteHuey, **settings) -> None:
    consumer = huey.create_consumer(periodic=False, **settings)
    # Signals are the main thread's, and the consumer is not in it.
    consumer._set_signal_handlers = lambda: None  # noqa: SLF001
    threading.Thread(target=consumer.run, daemon=True).start()


def enqueue_one(task: Task) -> Measured:
    plain = plain_task(opened(task))
    return harness.one_by_one(task, lambda: plain(PAYLOAD), DURABLE)


def producers_100(task: Task) -> Measured:
    plain = plain_task(opened(task))
    return harness.by_threads(task, lambda: plain(PAYLOAD), f"{DURABLE}; 100 threads, as it has no asyncio")


def drain(task: Task) -> Measured:
    huey = opened(task)
    plain = plain_task(huey)
    # Untimed, so not every one of them has to reach the disk.
    huey.storage.conn.execute("pragma synchronous=off")
    for _ in range(task.count):
        plain(PAYLOAD)
    huey.storage.conn.execute("pragma synchronous=full")
    started = time.perf_counter()
    start(huey, workers=WORKERS, initial_delay=0.01, max_delay=0.01)
    settings = f"{WORKERS} threads; {DURABLE}; a task is deleted when it is taken (at most once), which is counted"
    return harness.watch(task, f"select {task.count} - count(*) from task", settings, started=started)


def latency(task: Task) -> Latencies:
    huey = opened(task)

    @huey.task()
    def late() -> None:
        stopwatch.start_of_handler()

    start(huey)
    time.sleep(1)
    settings = f"defaults: one thread, polls every 0.1 s and more rarely when idle; {DURABLE}"
    return stopwatch.measure(task, late, settings, polled=0.1)


if __name__ == "__main__":
    harness.main(
        "huey",
        "huey",
        {"enqueue_one": enqueue_one, "producers_100": producers_100, "drain": drain, "latency": latency},
        {
            "enqueue_many": "no bulk call, and no transaction around several",
            "raw_batches": "tasks are taken one by one",
            "runs_1": PLAIN_QUEUE,
            "runs_10": PLAIN_QUEUE,
            "fan_out": "nothing durable waits for other tasks",
        },
    )
