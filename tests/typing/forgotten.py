"""What type checkers say of a forgotten `await` or `.execute`, with what docs/guides/types.md switches on."""

# mypy: enable-error-code="unused-awaitable"
# pyright: reportUnusedCallResult=error

import pgqrs


@pgqrs.workflow
async def order(ctx: pgqrs.Context, customer: str) -> int:
    return len(customer)


async def forgotten(ctx: pgqrs.Context, store: pgqrs.Store) -> None:
    order.trigger("ann")  # pyright: ignore[reportUnusedCallResult]
    order.trigger("ann").wait()  # pyright: ignore[reportUnusedCallResult]
    pgqrs.workflow("order").trigger("ann")  # pyright: ignore[reportUnusedCallResult]
    order.trigger("ann").execute(store)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine, reportUnusedCallResult]
    ctx.gather(ctx.sleep(1), ctx.sleep(2))  # type: ignore[unused-awaitable]  # pyright: ignore[reportUnusedCallResult]
    pgqrs.connect("sqlite://:memory:")  # type: ignore[unused-awaitable]  # pyright: ignore[reportUnusedCallResult]
    await ctx.sleep(1)
    _ = await order.trigger("ann").execute(store)
