"""What type checkers know of a workflow that another one calls: whether to await it depends on the caller's context."""

from dataclasses import dataclass
from typing import assert_type

import pgqrs
from pgqrs.api.inline import RunContext


@dataclass
class Receipt:
    total: int


@pgqrs.workflow
def receipt(ctx: pgqrs.SyncContext, order_id: int, copies: int = 1) -> str:
    return f"{copies} x receipt {order_id}"


@pgqrs.workflow("billing.stamp")
def stamp(order_id: int) -> Receipt:
    return Receipt(order_id)


@pgqrs.workflow
async def invoice(ctx: pgqrs.Context, order_id: int, *, copies: int = 1) -> str:
    return f"{copies} x invoice {order_id}"


@pgqrs.workflow(retry=pgqrs.RetryPolicy(max_attempts=2))
async def parcel(order_id: int) -> Receipt:
    return Receipt(order_id)


@pgqrs.workflow
async def async_parent(ctx: pgqrs.Context, order_id: int) -> str:
    assert_type(await receipt(ctx, order_id, 2), str)
    assert_type(await receipt(ctx, order_id, copies=2), str)
    assert_type(await receipt.run(ctx, order_id), str)
    assert_type(await stamp(ctx, order_id), Receipt)
    assert_type(await invoice(ctx, order_id, copies=2), str)
    assert_type(await invoice.run(ctx, order_id), str)
    assert_type(await parcel(ctx, order_id), Receipt)
    first, second = await ctx.gather(receipt(ctx, 1), parcel(ctx, 2))
    assert_type(first, str)
    assert_type(second, Receipt)
    receipt(ctx, order_id)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    receipt.run(ctx, order_id)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    print(stamp(ctx, order_id).total)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    await receipt(ctx, "A1")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await receipt(ctx, order_id, copeis=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    _ = stamp(ctx)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    if order_id:
        return receipt(ctx, order_id)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
    return await receipt(ctx, order_id)


@pgqrs.workflow
def plain_parent(ctx: pgqrs.SyncContext, order_id: int) -> str:
    assert_type(receipt(ctx, order_id, copies=2), str)
    assert_type(receipt.run(ctx, order_id), str)
    assert_type(stamp(ctx, order_id), Receipt)
    assert_type(invoice(ctx, order_id, copies=2), str)
    assert_type(invoice.run(ctx, order_id), str)
    assert_type(parcel(ctx, order_id).total, int)
    first, second = ctx.gather(lambda: invoice(ctx, 1), lambda: parcel(ctx, 2))
    assert_type(first, str)
    assert_type(second, Receipt)
    invoice(ctx, order_id)
    invoice(ctx, "A1")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    invoice(ctx, order_id, copeis=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    _ = parcel(ctx)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    return invoice(ctx, order_id)


async def in_a_run_of_its_own(run: RunContext) -> None:
    assert_type(await invoice(run, 1), str)
    assert_type(receipt(run, 1), str)


def without_a_context() -> None:
    assert_type(receipt(1), str)
    # Also in the body of a plain workflow, where it is a `str`: types cannot see the caller.
    invoice(1).upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
