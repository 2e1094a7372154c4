"""Steps: in a row, in a loop, side by side, tried again, with an effect in the database."""

from __future__ import annotations

from typing import Any, ClassVar

import pgqrs
from proof.crash.scenarios.payments import Payments
from proof.crash.scenarios.scenario import Scenario, rows

PATIENT = pgqrs.RetryPolicy(max_attempts=20)


class Steps(Scenario):
    """Three steps, one after the other."""

    name = "steps"
    right = 6

    async def handler(self, ctx):
        return sum([await self.step(ctx, name, value) for name, value in (("a", 1), ("b", 2), ("c", 3))])


class Loop(Scenario):
    """A plain function in a thread, with the same step again and again."""

    name = "loop"
    threads = True
    right: ClassVar[Any] = [0, 1, 4, 9]

    @property
    def handlers(self):
        return {"loop": self.plain}

    def plain(self, ctx):
        def square(n):
            self.world.effect(f"loop square {n}", key=ctx.idempotency_key)
            return n * n

        return [ctx.step("square", square, n) for n in range(4)]


class Branches(Scenario):
    name = "branches"
    width = 3
    right: ClassVar[Any] = ["ab", "ab", "ab"]

    async def handler(self, ctx):
        async def branch(n):
            first = await self.step(ctx, "first", "a", label=f" {n}")
            return first + await self.step(ctx, "second", "b", label=f" {n}")

        return await ctx.gather(*(branch(n) for n in range(3)))


class StepRetry(Scenario):
    """The world outside refuses twice."""

    name = "step_retry"
    often: ClassVar[dict[str, int]] = {"step_retry flaky": 3}
    right = "third time"

    async def handler(self, ctx):
        async def flaky():
            self.did(ctx, "flaky")
            if self.world.times("step_retry flaky") < 3:
                raise ValueError("not yet")
            return "third time"

        await self.step(ctx, "before")
        return await ctx.step("flaky", flaky, retry=PATIENT)


class RunRetry(Scenario):
    name = "run_retry"
    right = "after"

    async def handler(self, ctx):
        await self.step(ctx, "before")
        self.did(ctx, "between")
        if self.world.times("run_retry between") < 3:
            raise ValueError("not yet")
        return await self.step(ctx, "after", "after")

    # What is outside of steps is done again in each pass, and nothing else is promised for it.
    width = 3
    outside = frozenset({"run_retry between"})
    often: ClassVar[dict[str, int]] = {"run_retry between": 3}


class Transactional(Payments):
    """A step whose effect is in the database, and one outside of it on each side."""

    name = "transactional"
    right: ClassVar[Any] = [1, 2]

    async def handler(self, ctx):
        await self.step(ctx, "before")
        first = await ctx.transaction("pay", self.paying())
        await self.step(ctx, "between")
        return [first, await ctx.transaction("pay", self.paying())]

    async def check(self):
        await super().check()
        assert await self.paid() == 2, f"paid {await self.paid()} times, not twice"
        told = await rows(self.world.store, "select count(*) from pgqrs_outbox_events")
        assert told[0][0] == 2, f"{told[0][0]} events, not two"
