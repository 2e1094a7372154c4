"""What type checkers know of `pgqrs.blocking`."""

from dataclasses import dataclass
from typing import Any, assert_type

import pgqrs
from pgqrs import blocking


@dataclass
class Receipt:
    total: int


@blocking.workflow_decorator
async def order(ctx: pgqrs.Context, customer: str) -> Receipt:
    return Receipt(1)


def queues() -> None:
    with blocking.connect("sqlite://:memory:", lease_seconds=5) as store:
        assert_type(store, blocking.Store)
        store.create_queue("tasks")
        assert_type(store.producer("tasks").enqueue({"n": 1}, priority=5), int)
        for message in store.consume("tasks"):
            assert_type(message, blocking.Message)
            assert_type(message.payload, Any)
            message.archive()
        with store.consumer("tasks") as consumer:
            assert_type(consumer.dequeue(10), list[blocking.Message])
        assert_type(blocking.admin(store).queue_metrics("tasks"), pgqrs.reports.QueueMetrics)
        store.create_queu("tasks")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        store.producer("tasks").enqueue(1, prority=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    blocking.connect("sqlite://:memory:", lease_secs=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def workflows(store: blocking.Store) -> None:
    assert_type(blocking.workflow("order").trigger({"customer": "ann"}).execute(store), int)
    flow = blocking.workflow(order)
    assert_type(flow.trigger("ann").execute(store), int)
    assert_type(flow.trigger("ann", idempotency_key="a").wait().execute(store), Receipt)
    run = flow.get_run(1, store)
    assert_type(run, blocking.Run[Receipt])
    assert_type(run.result(), Receipt)
    assert_type(run.output(), Receipt | None)
    worker = blocking.consumer("w", 0, "order").handler(order).create(store)
    assert_type(worker, blocking.Worker)
    worker.run_until_idle()
    flow.trigger("ann", custmer="bob")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    flow.trigger(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def not_awaited(store: blocking.Store) -> None:
    await store.create_queue("tasks")  # type: ignore[func-returns-value, misc]  # pyright: ignore[reportGeneralTypeIssues]
