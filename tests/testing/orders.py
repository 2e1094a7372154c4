"""A workflow as users write them: the tests of the kit play with it."""

import pgqrs


@pgqrs.step
def charge(sku: str) -> str:
    return f"{sku} is paid for"


@pgqrs.step
async def ship(sku: str) -> str:
    return f"{sku} is on its way"


@pgqrs.workflow
async def order(ctx: pgqrs.PyWorkflow, sku: str) -> dict[str, str]:
    paid = await charge(sku)
    answer = await ctx.wait_for("approve")
    await ctx.emit("order.shipped", {"sku": sku})
    return {"paid": paid, "sent": await ship(sku), "by": answer["by"]}


@pgqrs.workflow
def purchase(sku: str) -> str:
    return charge(sku)


@pgqrs.workflow
async def basket(ctx: pgqrs.PyWorkflow, skus: list[str]) -> list[str]:
    return await ctx.map(purchase, skus)


def approve(kit, run):
    """The world outside of an order."""
    kit.drain()
    kit.signal(run, "approve", {"by": "ann"})
    kit.drain()
