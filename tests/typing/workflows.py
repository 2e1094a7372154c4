"""What type checkers know of decorated workflows. Lines with `ignore` must be errors: an `ignore` too many is one."""

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_type

import pgqrs


@dataclass
class Receipt:
    total: int


@pgqrs.workflow
async def order(ctx: pgqrs.Context, customer: str, items: int = 1) -> Receipt:
    return Receipt(items)


@pgqrs.workflow
async def no_context(customer: str) -> Receipt:
    return Receipt(1)


@pgqrs.workflow("named", retry=pgqrs.RetryPolicy(max_attempts=3))
async def named(ctx: pgqrs.Context, customer: str) -> int:
    return 1


@pgqrs.workflow(concurrency=3, schedule="0 3 * * *")
async def with_options(ctx: pgqrs.Context, customer: str) -> int:
    return 1


@pgqrs.workflow
def plain(ctx: pgqrs.SyncContext, customer: str) -> Receipt:
    return Receipt(1)


@pgqrs.workflow
def plain_without(customer: str) -> Receipt:
    return Receipt(1)


@pgqrs.workflow
async def anything(payload: Any) -> Receipt:
    return Receipt(1)


async def triggering(store: pgqrs.Store) -> None:
    assert_type(await order.trigger("ann").execute(store), int)
    assert_type(await order.trigger("ann", items=2).wait().timeout(5).execute(store), Receipt)
    assert_type(await order.trigger("ann", 2, priority=5, delay=3).execute(store), int)
    assert_type(await order.trigger("ann", 2, idempotency_key="a").wait().execute(store), Receipt)
    assert_type(await order.trigger_many([{"customer": "ann"}]).execute(store), list[int])
    assert_type(await named.trigger("ann").wait().execute(store), int)
    assert_type(await with_options.trigger("ann").wait().execute(store), int)
    assert_type(await no_context.trigger(customer="ann").wait().execute(store), Receipt)
    assert_type(await plain.trigger("ann").wait().execute(store), Receipt)
    assert_type(await plain_without.trigger("ann").wait().execute(store), Receipt)
    await anything.trigger({"a": 1}).wait().execute(store)
    order.trigger("ann", itms=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    order.trigger(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    order.trigger()  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    order.trigger("ann", prority=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    order.trigger("ann", priority="high")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    order.trigger_many([]).wait()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    no_context.trigger("ann", 5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    plain.trigger(customer=7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    order.triger("ann")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


async def by_name(store: pgqrs.Store) -> None:
    flow = pgqrs.workflow("order")
    assert_type(flow.name, str)
    assert_type(await flow.trigger({"customer": "ann"}, run_at=datetime.now(UTC)).execute(store), int)
    assert_type(await flow.trigger().wait().execute(store), Any)
    assert_type((await flow.get_run(1, store)).output(), Any | None)
    flow.trigger(5, prority=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pgqrs.workflow("order", retries=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    pgqrs.workflow(retries=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def calling(ctx: pgqrs.Context, store: pgqrs.Store) -> None:
    assert_type(await order("ann", items=3), Receipt)
    assert_type(await order(ctx, "ann"), Receipt)
    asked: Coroutine[Any, Any, Receipt] = order("ann")
    await asked
    assert_type(plain("ann"), Receipt)
    assert_type(plain_without("ann"), Receipt)
    assert_type(await order.run("ann", key="order-1", store=store), Receipt)
    assert_type(await order.run("ann"), Receipt)
    assert_type(plain.run("ann", key="a"), Receipt)
    order("ann")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    await order("ann", itms=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await order.run("ann", kye="a")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def forgotten(store: pgqrs.Store) -> None:
    order.trigger("ann").execute(store)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    order.get_run(1, store)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    store.create_queue("tasks")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    pgqrs.connect("sqlite://:memory:").create_queue("tasks")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
