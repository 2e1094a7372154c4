"""pgqrs from PyPI (a Rust core with Python bindings): another project than ours, with the same name."""

import asyncio
import time

import harness
from harness import BATCH, PAYLOAD, Latencies, Measured, Task

import pgqrs

QUEUE, WORKFLOW = "messages", "runs"
CONSUMERS, TAKEN, POOL, POLL = 4, 50, 32, 0.02
ARCHIVED = "select count(*) from pgqrs_messages where archived_at is not null"
SUCCEEDED = "select count(*) from pgqrs_workflow_runs where status = 'SUCCESS'"
stopwatch = harness.Stopwatch()


async def connected(task: Task):
    config = pgqrs.Config(task.dsn, max_connections=POOL)
    # By default a producer refuses what comes faster than a limit of its own.
    config.max_enqueue_per_second = config.max_enqueue_burst = None
    store = await pgqrs.connect_with(config)
    await pgqrs.admin(store).install()
    await store.queue(QUEUE)
    return store


async def filled(task: Task):
    store = await connected(task)
    producer = await store.producer(QUEUE)
    for size in harness.batches(task.count):
        await pgqrs.enqueue_batch(producer, [PAYLOAD] * size)
    return store


async def enqueue_one(task: Task) -> Measured:
    producer = await (await connected(task)).producer(QUEUE)
    return await harness.one_by_one_async(task, lambda: producer.enqueue(PAYLOAD), "Producer.enqueue")


async def enqueue_many(task: Task) -> Measured:
    producer = await (await connected(task)).producer(QUEUE)
    payloads = [PAYLOAD] * BATCH
    return await harness.one_by_one_async(
        task, lambda: pgqrs.enqueue_batch(producer, payloads), "enqueue_batch of 1,000", worth=BATCH
    )


async def producers_100(task: Task) -> Measured:
    producer = await (await connected(task)).producer(QUEUE)
    return await harness.by_producers(task, lambda: producer.enqueue(PAYLOAD), f"Producer.enqueue, pool of {POOL}")


async def handled(_message) -> None:
    return


async def handled_batch(messages) -> bool:
    for message in messages:
        await handled(message)
    return True


async def drain(task: Task) -> Measured:
    store = await filled(task)
    consumers = [await store.consumer(QUEUE) for _ in range(CONSUMERS)]
    started = time.perf_counter()
    for consumer in consumers:
        worker = pgqrs.dequeue().worker(consumer).batch(BATCH).poll_interval(round(POLL * 1000))
        harness.work(worker.handle_batch(handled_batch).poll(store))
    settings = (
        f"{CONSUMERS} consumers in one process, each dequeue().batch(1000).handle_batch().poll(): a batch is "
        f"archived as a whole; pool of {POOL}"
    )
    return await harness.watch_async(task, ARCHIVED, settings, started=started)


async def raw_batches(task: Task) -> Measured:
    consumer = await (await filled(task)).consumer(QUEUE)
    done, started = 0, time.perf_counter()
    while done < task.count and time.perf_counter() - started < task.seconds:
        messages = await consumer.dequeue(batch_size=BATCH)
        done += sum(await consumer.archive_many([message.id for message in messages]))
    return Measured(done, time.perf_counter() - started, "one consumer: dequeue 1,000, archive_many")


async def runs(task: Task) -> Measured:
    store = await connected(task)
    await pgqrs.workflow().name(WORKFLOW).store(store).create()
    room = asyncio.Semaphore(POOL)

    async def trigger() -> None:
        async with room:
            await pgqrs.workflow().name(WORKFLOW).store(store).trigger(PAYLOAD).execute()

    await asyncio.gather(*(trigger() for _ in range(task.count)))
    names = [f"step {number}" for number in range(task.steps)]

    @pgqrs.decorators.workflow(name=WORKFLOW)
    async def body(run, *_input) -> None:
        for name in names:
            step = await run.acquire_step(name)
            if step.status == pgqrs.StepResultStatus.Execute:
                await step.guard.success(None)

    async def execute(message) -> None:
        await body.run(await pgqrs.run().message(message).store(store).execute())

    async def worker(consumer) -> None:
        while True:
            if not (messages := await consumer.dequeue(batch_size=TAKEN)):
                await asyncio.sleep(POLL)
                continue
            await asyncio.gather(*map(execute, messages))
            await consumer.archive_many([message.id for message in messages])

    consumers = [await store.consumer(WORKFLOW) for _ in range(CONSUMERS)]
    started = time.perf_counter()
    for consumer in consumers:
        harness.work(worker(consumer))
    # Its own loop (dequeue().handle_workflow().poll()) runs what it took one after another: slower.
    settings = (
        f"{CONSUMERS} consumers in one process, each takes {TAKEN} runs, executes them together and archives them "
        f"with one call; pool of {POOL}"
    )
    return await harness.watch_async(task, SUCCEEDED, settings, started=started)


async def latency(task: Task) -> Latencies:
    store = await pgqrs.connect(task.dsn)
    await pgqrs.admin(store).install()
    await store.queue(QUEUE)
    producer, consumer = await store.producer(QUEUE), await store.consumer(QUEUE)

    async def handle(_message) -> bool:
        stopwatch.start_of_handler()
        return True

    harness.work(pgqrs.dequeue().worker(consumer).handle(handle).poll(store))
    await asyncio.sleep(1)
    settings = "defaults of dequeue().handle().poll(): it polls, there is no LISTEN"
    return await stopwatch.measure_async(task, lambda: producer.enqueue(PAYLOAD), settings, polled=0.25)


if __name__ == "__main__":
    if not hasattr(pgqrs, "enqueue_batch"):
        raise SystemExit("this is not the pgqrs of PyPI: run this script with the Python of its own environment")
    harness.main(
        "pgqrs",
        "pgqrs",
        {
            "enqueue_one": enqueue_one,
            "enqueue_many": enqueue_many,
            "producers_100": producers_100,
            "drain": drain,
            "raw_batches": raw_batches,
            "runs_1": runs,
            "runs_10": runs,
            "latency": latency,
        },
        {"fan_out": "no child runs: nothing durable starts another run and waits for it"},
    )
