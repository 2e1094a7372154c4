"""The work that is done under chaos: a workflow for each kind of durable thing, with results that can be foretold.

Each effect is a line of the ledger. Bodies take a few milliseconds before and after their effect, seldom some
seconds, so that faults come at every moment of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pgqrs
from proof.chaos.ledger import Ledger

QUEUE = "tasks"
BOOKS = "chaos_books"
EVENTS = 3

# The kinds that a producer triggers; `hold` and `tick` are for those who measure.
FORETOLD: dict[str, Callable[[int], int]] = {
    "plain": lambda n: 3 * n,
    "flaky": lambda n: 2 * n,
    "sleepy": lambda n: 2 * n,
    "asks": lambda n: 11 * n,
    "family": lambda n: 6 * n + 3,
    "books": lambda n: 2 * n,
    "tells": lambda n: n,
}


def handlers(ledger: Ledger) -> dict[str, Callable[..., Any]]:  # noqa: C901 - one for each kind of durable thing
    """By workflow."""

    async def effect(ctx, step: str, n: int) -> int:
        await _a_moment()
        ledger.note("effect", ctx.run_id, step, token_of(ctx))
        await _a_moment()
        return n

    async def plain(ctx, n: int) -> int:
        return sum([await ctx.step(name, effect, ctx, name, n) for name in ("one", "two", "three")])

    async def flaky(ctx, n: int) -> int:
        async def at_times(step: str) -> int:
            if random.random() < 0.4:
                raise OSError("not this time")
            return await effect(ctx, step, n)

        patient = pgqrs.RetryPolicy(max_attempts=1000, base=0.05, cap=0.2)
        first = await ctx.step("one", at_times, "one", retry=patient)
        if ctx.attempt == 1:
            raise pgqrs.TransientError("once more, from the top", retry_after=0.1)
        return first + await ctx.step("two", at_times, "two", retry=patient)

    async def sleepy(ctx, n: int) -> int:
        first = await ctx.step("one", effect, ctx, "one", n)
        await ctx.sleep(random.uniform(0.05, 1.0))
        return first + await ctx.step("two", effect, ctx, "two", n)

    async def asks(ctx, n: int) -> int:
        await ctx.step("one", effect, ctx, "one", n)
        return n + await ctx.wait_for("go", type=int)

    async def family(ctx, n: int) -> int:
        children = [await ctx.spawn("plain", n), await ctx.spawn("plain", n + 1)]
        return sum(await ctx.gather(*(child.result() for child in children)))

    async def books(ctx, n: int) -> int:
        async def book(tx: Any) -> int:
            # Numbers of our own: nothing to bind, and the same text on every database.
            await tx.execute(f"insert into {BOOKS} (run_id) values ({ctx.run_id})")
            return n

        return await ctx.transaction("debit", book) + await ctx.transaction("credit", book)

    async def tells(ctx, n: int) -> int:
        async def emitting() -> int:
            await ctx.emit("told", 1)
            return await effect(ctx, "two", n)

        await ctx.emit("told", 0)
        n = await ctx.step("two", emitting)
        await ctx.emit("told", 2)
        return n

    async def hold(ctx, _n: int) -> None:
        async def begin() -> None:
            ledger.note("effect", ctx.run_id, "hold", token_of(ctx))
            await asyncio.Event().wait()

        await ctx.step("hold", begin)

    async def tick(ctx, _n: int) -> None:
        for _ in count():
            await ctx.step("tick", asyncio.sleep, 0.02)
            ledger.note("recorded", ctx.run_id, "tick", token_of(ctx))

    kinds = (plain, flaky, sleepy, asks, family, books, tells, hold, tick)
    return {kind.__name__: _saying_when_it_ends(kind, ledger) for kind in kinds}


def token_of(ctx: Any) -> int:
    """The fence of this execution: what it writes is accepted while the message has the same."""
    token: int = ctx._run_pass.claim.lease.lease_token
    return token


def _saying_when_it_ends(kind: Callable[..., Any], ledger: Ledger) -> Callable[..., Any]:
    async def handler(ctx, n: int) -> Any:
        result = await kind(ctx, n)
        ledger.note("ending", ctx.run_id, token_of(ctx))
        return result

    return handler


def handling(ledger: Ledger) -> Callable[[pgqrs.Message], Any]:
    async def handle(message: pgqrs.Message) -> None:
        await asyncio.sleep(random.expovariate(1 / 0.05))
        ledger.note("handled", message.id, message.payload, message.lease_token)
        await _a_moment()

    return handle


def publishing(ledger: Ledger) -> Callable[[pgqrs.OutboxEvent], Any]:
    async def publish(event: pgqrs.OutboxEvent) -> None:
        await asyncio.sleep(random.expovariate(1 / 0.05))
        ledger.note("published", event.run_id, event.payload, event.id)

    return publish


async def _a_moment() -> None:
    # Now and then longer than a lease: that needs heartbeats.
    await asyncio.sleep(random.expovariate(1 / 0.01) if random.random() > 0.01 else 5.0)
