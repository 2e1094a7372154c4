"""Absurd: stored procedures with a thin SDK. A client has one connection, so a worker process holds several."""

import threading
import time

import harness
import psycopg
from absurd_sdk import Absurd, AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL
from harness import CHILDREN, PAYLOAD, PRODUCERS, Latencies, Measured, Task

QUEUE, CHILD_QUEUE = "work", "children"
TAKEN = 10
COMPLETED = f"select count(*) from absurd.t_{QUEUE} where state = 'completed'"
stopwatch = harness.Stopwatch()


def prepare(task: Task, *queues: str) -> Absurd:
    # What `absurdctl init` runs, without the psql that it needs.
    with psycopg.connect(task.dsn, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
    app = Absurd(task.dsn, queue_name=QUEUE)
    for queue in (QUEUE, *queues):
        app.create_queue(queue)
    return app


def bulk(task: Task, name: str, params):
    """A function that spawns so many in one transaction."""
    connection = psycopg.connect(task.dsn)
    app = Absurd(connection, queue_name=QUEUE)

    def spawn(size: int = harness.BATCH) -> None:
        for _ in range(size):
            app.spawn(name, params, queue=QUEUE)
        connection.commit()

    return spawn


def work(task: Task, clients: int, queue: str = QUEUE, **settings) -> None:
    """The worker process: so many clients, a thread for each."""
    for number in range(clients):
        app = Absurd(task.dsn, queue_name=queue)
        for name, body in BODIES.items():
            app.register_task(name)(body)
        options = {"worker_id": f"{queue} {number}", **settings}
        threading.Thread(target=app.start_worker, kwargs=options, daemon=True).start()


def plain(_params, _ctx) -> None:
    return


def steps(params, ctx) -> None:
    for number in range(params["steps"]):
        ctx.step(f"step {number}", lambda: None)


def late(_params, _ctx) -> None:
    stopwatch.start_of_handler()


BODIES = {"plain": plain, "steps": steps, "late": late}


def tuned(task: Task, name: str, params, *, clients: int) -> Measured:
    prepare(task)
    spawn = bulk(task, name, params)
    for size in harness.batches(task.count):
        spawn(size)
    started = time.perf_counter()
    work(task, clients, batch_size=TAKEN)
    settings = f"one process, {clients} clients (threads, each with its connection), batch_size {TAKEN}"
    return harness.watch(task, COMPLETED, settings, started=started)


def enqueue_one(task: Task) -> Measured:
    app = prepare(task)
    return harness.one_by_one(task, lambda: app.spawn("plain", PAYLOAD, queue=QUEUE), "Absurd.spawn")


def enqueue_many(task: Task) -> Measured:
    prepare(task)
    settings = "no bulk call: 1,000 Absurd.spawn in one transaction"
    return harness.one_by_one(task, bulk(task, "plain", PAYLOAD), settings, worth=harness.BATCH)


async def producers_100(task: Task) -> Measured:
    prepare(task)
    apps = [AsyncAbsurd(task.dsn, queue_name=QUEUE) for _ in range(PRODUCERS // 5)]
    for app in apps:
        await app.list_queues()
    turn = 0

    async def spawn() -> None:
        nonlocal turn
        turn += 1
        await apps[turn % len(apps)].spawn("plain", PAYLOAD, queue=QUEUE)

    return await harness.by_producers(task, spawn, f"AsyncAbsurd.spawn, {len(apps)} clients (connections)")


def drain(task: Task) -> Measured:
    return tuned(task, "plain", PAYLOAD, clients=4)


def runs(task: Task) -> Measured:
    return tuned(task, "steps", {"steps": task.steps}, clients=20)


def fan_out(task: Task) -> Measured:
    prepare(task, CHILD_QUEUE).spawn("parent", {}, queue=QUEUE)
    connection = psycopg.connect(task.dsn)
    spawner = Absurd(connection, queue_name=CHILD_QUEUE)

    def spawned() -> list[str]:
        children = [spawner.spawn("plain", PAYLOAD, queue=CHILD_QUEUE) for _ in range(CHILDREN)]
        connection.commit()
        return [str(child["task_id"]) for child in children]

    def parent(_params, ctx) -> None:
        for child in ctx.step("spawn", spawned):
            ctx.await_task_result(child, queue_name=CHILD_QUEUE)

    BODIES["parent"] = parent
    started = time.perf_counter()
    work(task, 1)
    work(task, 4, CHILD_QUEUE, batch_size=TAKEN)
    query = (
        f"select (select count(*) from absurd.t_{QUEUE} where state = 'completed') + "
        f"(select count(*) from absurd.t_{CHILD_QUEUE} where state = 'completed')"
    )
    settings = "children spawned in one transaction on a queue of their own (it allows no other), 4 clients for them"
    return harness.watch(task, query, settings, started=started, parents=1, expected=CHILDREN)


def latency(task: Task) -> Latencies:
    app = prepare(task)
    work(task, 1)
    time.sleep(1)
    settings = "defaults: one client polls every 0.25 s, there is no LISTEN"
    return stopwatch.measure(task, lambda: app.spawn("late", {}, queue=QUEUE), settings, polled=0.25)


if __name__ == "__main__":
    harness.main(
        "absurd",
        "absurd-sdk",
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
        {"raw_batches": "tasks are claimed in batches, but completed one by one"},
    )
