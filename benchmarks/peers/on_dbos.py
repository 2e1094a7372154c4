"""DBOS, on PostgreSQL and on SQLite: workflows of no-op steps that wait on a queue for the worker."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor

import harness
import sqlalchemy
from dbos import DBOS, DBOSClient, run_dbos_database_migrations
from harness import CHILDREN, PAYLOAD, Latencies, Measured, Task

APP, APP_VERSION, QUEUE = "bench", "1", "work"
CONCURRENCY, POLL, POOL = 200, 0.05, 20
WORKER = (
    f"one process, plain (threaded) workflows, worker_concurrency {CONCURRENCY}, queue polled every {POLL} s, "
    f"pool of {POOL}"
)
# DBOS itself sets no pragma but busy_timeout and foreign_keys, so it would run with a rollback journal.
ON_SQLITE = "; file in WAL mode (faster than its default journal), synchronous=FULL"
BULK = "no bulk call: 1,000 DBOSClient.enqueue_in_transaction in one transaction"
stopwatch = harness.Stopwatch()


@DBOS.step()
def nothing() -> None:
    return


@DBOS.workflow(name="plain")
def plain(_payload) -> None:
    return


@DBOS.workflow(name="steps")
def steps(count) -> None:
    for _ in range(count):
        nothing()


@DBOS.workflow(name="parent")
def parent() -> None:
    children = [DBOS.enqueue_workflow(QUEUE, plain, PAYLOAD) for _ in range(CHILDREN)]
    for child in children:
        child.get_result(polling_interval_sec=POLL)


@DBOS.workflow(name="late")
def late() -> None:
    stopwatch.start_of_handler()


def prepare(task: Task, **queue) -> DBOSClient:
    """The tables, the queue, and a client that enqueues without being a worker."""
    if task.is_sqlite:
        connection = sqlite3.connect(task.path)
        connection.execute("pragma journal_mode=wal")
        connection.close()
    run_dbos_database_migrations(task.dsn)
    client = DBOSClient(system_database_url=task.dsn, application_name=APP, system_database_pool_size=POOL)
    client.register_queue(QUEUE, **queue)
    return client


def launch(task: Task) -> None:
    """The worker's start: it begins to poll."""
    DBOS(
        config={
            "name": APP,
            "system_database_url": task.dsn,
            "application_version": APP_VERSION,
            "sys_db_pool_size": POOL,
            "log_level": "ERROR",
            "run_migrations": False,
        }
    )
    DBOS.launch()


def called(name: str):
    return {"workflow_name": name, "queue_name": QUEUE, "app_version": APP_VERSION}


def bulk(task: Task, client: DBOSClient, name: str, argument):
    """A function that enqueues so many in one transaction."""
    engine = sqlalchemy.create_engine(task.dsn.replace("postgresql:", "postgresql+psycopg:", 1))

    def enqueue(size: int = harness.BATCH) -> None:
        with engine.begin() as connection:
            for _ in range(size):
                client.enqueue_in_transaction(connection, called(name), argument)

    return enqueue


def tuned(task: Task, name: str, argument) -> Measured:
    """So many workflows enqueued, then the worker started."""
    client = prepare(task, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL)
    enqueue = bulk(task, client, name, argument)
    for size in harness.batches(task.count):
        enqueue(size)
    started = time.perf_counter()
    launch(task)
    return harness.watch(task, done(task), noted(task, WORKER), started=started)


def done(task: Task) -> str:
    return f"select count(*) from {'' if task.is_sqlite else 'dbos.'}workflow_status where status = 'SUCCESS'"


def noted(task: Task, settings: str) -> str:
    return settings + ON_SQLITE if task.is_sqlite else settings


def enqueue_one(task: Task) -> Measured:
    client = prepare(task)
    settings = noted(task, "DBOSClient.enqueue")
    return harness.one_by_one(task, lambda: client.enqueue(called("plain"), PAYLOAD), settings)


def enqueue_many(task: Task) -> Measured:
    return harness.one_by_one(
        task, bulk(task, prepare(task), "plain", PAYLOAD), noted(task, BULK), worth=harness.BATCH
    )


def producers_100(task: Task) -> Awaitable[Measured]:
    return producing(task, prepare(task))


async def producing(task: Task, client: DBOSClient) -> Measured:
    # Its async calls are plain ones in the loop's executor, which would have 6 threads on 2 cores.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(POOL))
    settings = noted(task, f"DBOSClient.enqueue_async, {POOL} threads, pool of {POOL}")
    return await harness.by_producers(task, lambda: client.enqueue_async(called("plain"), PAYLOAD), settings)


def drain(task: Task) -> Measured:
    return tuned(task, "plain", PAYLOAD)


def runs(task: Task) -> Measured:
    return tuned(task, "steps", task.steps)


def fan_out(task: Task) -> Measured:
    client = prepare(task, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL)
    client.enqueue(called("parent"))
    started = time.perf_counter()
    launch(task)
    settings = noted(task, f"{WORKER}; the parent enqueues its children on the same queue")
    return harness.watch(task, done(task), settings, started=started, parents=1, expected=CHILDREN)


def latency(task: Task) -> Latencies:
    prepare(task)
    launch(task)
    # Until its manager has found the queue, which it looks for every second.
    time.sleep(2)
    settings = noted(task, "defaults: the queue is polled every 1 s; DBOS.enqueue_workflow in the worker's process")
    return stopwatch.measure(task, lambda: DBOS.enqueue_workflow(QUEUE, late), settings, polled=1.0)


if __name__ == "__main__":
    harness.main(
        "dbos",
        "dbos",
        {
            "enqueue_one": enqueue_one,
            "enqueue_many": enqueue_many,
            "producers_100": producers_100,
            "drain": drain,
            "runs_1": runs,
            "runs_10": runs,
            "fan_out": fan_out,
            "latency": latency,
        },
        {"raw_batches": "no API that takes and finishes messages without running workflows"},
    )
