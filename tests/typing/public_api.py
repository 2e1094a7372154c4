"""What a type checker must know of the public API; `make check` reads this, nobody runs it."""

import sqlite3
from dataclasses import dataclass
from typing import Any, assert_type

import pgqrs


@dataclass
class Order:
    number: int


async def queues() -> None:
    store = await pgqrs.connect("sqlite://:memory:")
    assert_type(store, pgqrs.Store)
    async with pgqrs.connect_with(pgqrs.Config("sqlite://:memory:")) as entered:
        assert_type(entered, pgqrs.Store)

    producer = await store.producer("tasks")
    assert_type(await producer.enqueue({"n": 1}, delay=5, priority=3), int)
    assert_type(await producer.enqueue_many([1, 2]), list[int])
    await producer.enqueue(1, prority=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await producer.enqueue(1, delay="soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    consumer = await store.consumer("tasks")
    assert_type(await consumer.dequeue(10, lease_seconds=30), list[pgqrs.Message])
    async for message in store.consume("tasks"):
        assert_type(message, pgqrs.Message)
        assert_type(message.payload, Any)
        assert_type(message.decode(Order), Order)
        assert_type(await consumer.archive_many([message, 7]), list[int])

    admin = pgqrs.admin(store)
    assert_type(await admin.queue_metrics("tasks"), pgqrs.reports.QueueMetrics)
    assert_type(await admin.workers(), list[pgqrs.types.WorkerInfo])
    assert_type((await admin.workers())[0].status, pgqrs.types.WorkerStatus)


def transactions(connection: sqlite3.Connection) -> None:
    assert_type(pgqrs.using(connection).enqueue("tasks", 1, priority=2), int)


async def outbox(store: pgqrs.Store) -> None:
    async def publish(event: pgqrs.types.OutboxEvent) -> None:
        assert_type(event.payload, Any)

    publisher: pgqrs.types.Publisher = pgqrs.HttpPublisher("https://hooks.example.org/", mode="binary")
    dispatcher = pgqrs.dispatcher(store).to(publish, types=["order.*"]).to(publisher).to(pgqrs.NotifyPublisher("x"))
    assert_type(dispatcher.concurrency(4).max_attempts(3).deadline(5), pgqrs.types.Dispatcher)
    pgqrs.HttpPublisher("https://hooks.example.org/", mode="batch")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(pgqrs.verify_signature("secret", None, b""), bool)
