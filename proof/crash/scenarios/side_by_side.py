"""Side by side: tasks of a handler that wait while others work, fail while others work, and outlive a pass."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from proof.crash.scenarios.errors import Refused, seen
from proof.crash.scenarios.scenario import Scenario


class Background(Scenario):
    """A timer runs in the background; steps beside it do not wait for it."""

    name = "background"
    right: ClassVar[Any] = ["first", "second", "after"]

    async def handler(self, ctx):
        timer = asyncio.create_task(ctx.sleep(3600))
        done = [await self.step(ctx, name, name) for name in ("first", "second")]
        await timer
        return [*done, await self.step(ctx, "after", "after")]

    async def check(self):
        await super().check()
        at: dict[str, float] = {}
        for line in self.world.ledger.lines("effect"):
            at.setdefault(line["what"], line["at"])
        assert at["background after"] - at["background second"] >= 3600, "a step waited for the timer beside it"


class BackgroundWork(Scenario):
    """Steps in the background while the handler sleeps; one fails, and is caught where its task is awaited."""

    name = "background_work"
    # One step in the background, and one of the handler's own.
    width = 2
    right: ClassVar[Any] = ["before", "compensated"]

    async def handler(self, ctx):
        async def fails():
            self.did(ctx, "ship")
            raise Refused("out of stock", code=409)

        async def work():
            await self.step(ctx, "pack")
            await ctx.step("ship", fails)

        task = asyncio.create_task(work())
        before = await self.step(ctx, "before", "before")
        await ctx.sleep(60)
        try:
            await task
        except Refused as error:
            self.saw(ctx, "error", seen(error, "code"))
            return [before, await self.step(ctx, "compensate", "compensated")]
        return [before, "shipped"]


class Grouped(Scenario):
    """A TaskGroup: one task fails while another one's step is in flight; `except*` compensates."""

    name = "task_group"
    width = 2
    right = "compensated"

    async def handler(self, ctx):
        async def fails():
            self.did(ctx, "ship")
            raise Refused("out of stock", code=409)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._asked(self.step(ctx, "charge")))
                group.create_task(self._asked(ctx.step("ship", fails)))
        except* Refused as errors:
            self.saw(ctx, "errors", [seen(error, "code") for error in errors.exceptions])
        await self.step(ctx, "refund")
        await ctx.sleep(60)
        return await self.step(ctx, "after", "compensated")

    @staticmethod
    async def _asked(step):
        return await step


class Gathered(Scenario):
    """Errors gathered as values, beside a wait."""

    name = "gathered"
    width = 2
    right: ClassVar[Any] = ["done", 409, None]

    async def handler(self, ctx):
        async def fails():
            self.did(ctx, "ship")
            raise Refused("out of stock", code=409)

        done, error, slept = await ctx.gather(
            self.step(ctx, "charge", "done"), ctx.step("ship", fails), ctx.sleep(60), return_exceptions=True
        )
        self.saw(ctx, "error", seen(error, "code"))
        await self.step(ctx, "refund" if isinstance(error, Refused) else "nothing")
        return [done, error.code, slept]
