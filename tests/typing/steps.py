"""What type checkers know of steps, and of a handler's context."""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NewType, Optional, assert_type
from uuid import UUID

import pgqrs
from pgqrs.db.database import Transaction

Customer = NewType("Customer", str)


@dataclass
class Parcel:
    weight: int


@pgqrs.step
async def fetch(ctx: pgqrs.Context, url: str, tries: int = 1) -> Parcel:
    return Parcel(tries)


@pgqrs.step("weigh.it", retry=pgqrs.RetryPolicy(max_attempts=2))
async def weigh(parcel: Parcel) -> int:
    return parcel.weight


@pgqrs.step(id="charge")
def charge(customer: str, amount: int) -> str:
    return customer


@pgqrs.step
def notify(ctx: pgqrs.SyncContext, customer: str) -> bool:
    return bool(customer)


class Shop:
    @pgqrs.step
    async def pack(self, parcel: Parcel) -> int:
        return parcel.weight


async def shipped(parcel: Parcel, *, to: str) -> UUID:
    return UUID(to)


def given(*values: object) -> None:
    """Values that were assigned only for their types."""


def labelled(parcel: Parcel, copies: int = 1) -> str:
    return str(parcel)


@pgqrs.workflow
async def doubled(ctx: pgqrs.Context, n: int) -> int:
    return n * 2


@pgqrs.workflow
async def packed(ctx: pgqrs.Context, n: int) -> Parcel:
    return Parcel(n)


async def decorated(ctx: pgqrs.Context, shop: Shop) -> None:
    assert_type(await fetch(ctx, "x", tries=2), Parcel)
    assert_type(await fetch("x"), Parcel)
    assert_type(await weigh(Parcel(1)), int)
    assert_type(await weigh(ctx, Parcel(1)), int)
    assert_type(charge("ann", 5), str)
    assert_type(await charge(ctx, "ann", 5), str)
    assert_type(await shop.pack(Parcel(1)), int)
    await fetch(ctx, 5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await fetch(ctx, "x", treis=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    fetch(ctx, "x")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    charge(ctx, "ann", 5)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    pgqrs.step(retries=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def in_an_async_handler(ctx: pgqrs.Context) -> None:
    parcel = await ctx.step("fetch", fetch_one, "x")
    assert_type(parcel, Parcel)
    assert_type(await ctx.step("ship", shipped, parcel, to="ann"), UUID)
    assert_type(await ctx.step("label", labelled, parcel, copies=2), str)
    assert_type(await ctx.step("label", labelled, parcel, retry=pgqrs.RetryPolicy(), timeout=5), str)
    assert_type(await ctx.step("ship", shipped, parcel, to="ann", timeout=5), UUID)
    assert_type(await ctx.step("later", lambda: shipped(parcel, to="ann")), UUID)
    assert_type(await ctx.step("now", lambda: 5), int)
    asked: Coroutine[Any, Any, str] = ctx.step("label", labelled, parcel)
    await asked
    assert_type(await ctx.transaction("debit", debited), int)
    assert_type(await ctx.wait_for("approval"), Any)
    assert_type(await ctx.wait_for("approval", timeout=5, type=Parcel), Parcel)
    assert_type((await ctx.wait_for("approval", type=pgqrs.Answer[Parcel])).value, Parcel)
    assert_type(await ctx.pause("look", type=Parcel), Parcel)
    assert_type(await (await ctx.spawn(doubled, 5)).result(), int)
    assert_type(await ctx.map(doubled, [1, 2]), list[int])
    assert_type(await ctx.map(doubled, [1, 2], return_exceptions=True), list[int | BaseException])
    # A child's result comes back as plain data: a dataclass as a dict.
    assert_type(await (await ctx.spawn(packed, 5)).result(), Any)
    assert_type(await ctx.map(packed, [1, 2]), list[Any])
    assert_type(await (await ctx.spawn("doubled", 5)).result(), Any)
    one, two = await ctx.gather(ctx.step("a", fetch_one, "x"), ctx.step("b", labelled, parcel))
    assert_type(one, Parcel)
    assert_type(two, str)
    assert_type(await ctx.gather(*(ctx.step("a", labelled, each) for each in [parcel])), list[str])
    assert_type(await ctx.now(), datetime)
    assert_type(ctx.run_id, int)
    await ctx.step("ship", shipped, parcel, too="ann")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await ctx.step("label", labelled, "parcel")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.step(labelled, "label")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.step("label", shipped(parcel, to="ann"))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.stp("label", labelled, parcel)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    await ctx.spawn(5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    ctx.step("label", labelled, parcel)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    ctx.sleep(5)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    ctx.emit("order.paid")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


def in_a_plain_handler(ctx: pgqrs.SyncContext) -> None:
    parcel = ctx.step("fetch", fetch_one, "x")
    assert_type(parcel, Parcel)
    assert_type(ctx.step("label", labelled, parcel, copies=2), str)
    assert_type(ctx.step("label", labelled, parcel, retry=pgqrs.RetryPolicy()), str)
    assert_type(fetch(ctx, "x"), Parcel)
    assert_type(charge(ctx, "ann", 5), str)
    assert_type(notify(ctx, "ann"), bool)
    assert_type(notify("ann"), bool)
    assert_type(ctx.wait_for("approval", type=Parcel), Parcel)
    assert_type(ctx.pause(), Any)
    assert_type(ctx.spawn(doubled, 5).result(), int)
    assert_type(ctx.map(doubled, [1]), list[int])
    one, two = ctx.gather(lambda: 5, lambda: "x")
    assert_type(one, int)
    assert_type(two, str)
    assert_type(ctx.now(), datetime)
    ctx.stp("label", labelled, parcel)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    ctx.step("label", labelled, "parcel")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def fetch_one(url: str) -> Parcel:
    return Parcel(len(url))


async def debited(tx: Transaction) -> int:
    await tx.execute("update accounts set balance = balance - 1")
    return 1


async def of_a_type(ctx: pgqrs.Context) -> None:
    wrong: int = await ctx.wait_for("approval", type=Parcel)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong = await ctx.wait_for("approval", timeout=5, type=Parcel)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong = await ctx.pause("look", type=Parcel)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    right: Parcel = await ctx.wait_for("approval", type=Parcel)
    either: Parcel | int = await ctx.wait_for("approval", type=Parcel | int)
    maybe: Parcel | None = await ctx.pause(type=Parcel | None)
    maybe = await ctx.wait_for("approval", timeout=5, type=Optional[Parcel])  # noqa: UP045 - as older code has it
    ways: list[Parcel] = await ctx.wait_for("approval", type=list[Parcel])
    word: str = await ctx.wait_for("approval", type=Literal["yes", "no"])
    noted: int = await ctx.wait_for("approval", type=Annotated[int, "at least 5"])
    nothing: None = await ctx.wait_for("approval", type=None)
    maybe = await ctx.wait_for("approval", type=Parcel)
    measured: float = await ctx.wait_for("approval", type=int)
    covered: Sequence[object] = await ctx.wait_for("approval", type=list[int])
    by: object = await ctx.pause("look", type=Parcel)
    answer: pgqrs.Answer[Parcel] | None = await ctx.wait_for("approval", type=pgqrs.Answer[Parcel])
    listed: Sequence[int] = await ctx.wait_for("approval", type=Sequence[int])
    customer: Customer = await ctx.wait_for("approval", type=Customer)
    given(wrong, right, either, maybe, ways, word, noted, nothing, listed, customer, measured, covered, by, answer)


def of_a_type_in_a_plain_handler(ctx: pgqrs.SyncContext) -> None:
    wrong: int = ctx.wait_for("approval", type=Parcel)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong = ctx.wait_for("approval", timeout=5, type=Parcel)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong = ctx.pause("look", type=Parcel)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    either: Parcel | int = ctx.wait_for("approval", type=Parcel | int)
    listed: Sequence[int] = ctx.wait_for("approval", type=Sequence[int])
    maybe: Parcel | None = ctx.pause("look", type=Parcel)
    noted: int = ctx.pause("look", type=Annotated[int, "at least 5"])
    given(wrong, either, listed, maybe, noted)
