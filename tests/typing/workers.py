"""What type checkers know of the workflows that a worker is given."""

import textwrap
from collections.abc import Callable
from typing import Any

import pgqrs


@pgqrs.workflow
async def order(ctx: pgqrs.Context, customer: str) -> int:
    return len(customer)


@pgqrs.workflow
def receipt(customer: str) -> str:
    return customer


async def by_hand(ctx: pgqrs.Context, n: int) -> int:
    return n


def by_hand_plainly(customer: str, *, copies: int = 1) -> str:
    return customer * copies


async def serving(store: pgqrs.Store) -> None:
    made = pgqrs.worker("w").workflows({"order": order, "receipt": receipt, "by_hand": by_hand})
    worker = await made.workflows(textwrap).workflows(pgqrs.discover_workflows(textwrap)).create(store)
    await worker.add_workflows({"order": order})
    # In a variable mypy takes functions of several kinds for objects: that must stay right.
    functions = {"by_hand": by_hand, "by_hand_plainly": by_hand_plainly}
    mixed = {"order": order, "by_hand": by_hand}
    declared: dict[str, Callable[..., Any]] = {"order": order}
    made.workflows(functions).workflows(mixed).workflows(declared)
    made.workflows([order, receipt]).workflows(order).workflows((receipt,))
    made.workflows([by_hand])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    made.workflows(by_hand)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    made.workflows({5: order})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    await worker.add_workflows("order")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
