"""What type checkers know of the testing kits."""

from typing import assert_type

import pgqrs as library
from pgqrs import blocking
from pgqrs.testing import AsyncKit, Kit, RunHandle


@library.workflow
async def order(ctx: library.Context, sku: str) -> str:
    return sku


def plain(pgqrs: Kit) -> None:
    run = pgqrs.trigger(order, "A1", priority=5)
    assert_type(run, RunHandle)
    pgqrs.advance(days=6)
    pgqrs.drain(skip_time=True)
    assert_type(pgqrs.retry_children(run, actor="ann"), list[RunHandle])
    assert_type(pgqrs.runs(order), list[RunHandle])
    assert_type(pgqrs.store, blocking.Store)
    pgqrs.drian()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    pgqrs.cancel(run, resaon="late")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pgqrs.signal(5, "paid")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    run.reslut()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


async def awaited(apgqrs: AsyncKit) -> None:
    run = await apgqrs.trigger(order, "A1")
    assert_type(await apgqrs.retry_children(run), list[RunHandle])
    apgqrs.drain()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    await apgqrs.drian()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
