"""Waits: for time, for signals, for a person."""

from __future__ import annotations

from typing import Any, ClassVar

import pgqrs
from proof.crash.scenarios.scenario import Scenario


class Sleep(Scenario):
    name = "sleep"
    right = "rested"

    async def handler(self, ctx):
        await self.step(ctx, "before")
        await ctx.sleep(60)
        await self.step(ctx, "between")
        await ctx.sleep(7200)
        return await self.step(ctx, "after", "rested")

    async def check(self):
        await super().check()
        at = {}
        for line in self.world.ledger.lines("effect"):
            at.setdefault(line["what"], line["at"])
        assert at["sleep between"] - at["sleep before"] >= 60, "woke too early"
        assert at["sleep after"] - at["sleep between"] >= 7200, "woke too early"


class Signals(Scenario):
    """One sent before anybody waits, one while the run waits."""

    name = "signals"
    right: ClassVar[Any] = ["early", "late"]

    async def handler(self, ctx):
        await self.step(ctx, "before")
        early = await ctx.wait_for("early")
        await self.step(ctx, "between")
        late = await ctx.wait_for("late")
        await self.step(ctx, "after")
        return [early, late]

    async def program(self):
        run_id = await self.world.trigger("signals")
        flow = pgqrs.workflow("signals")
        await self.world.once("early", lambda: flow.signal(run_id, self.world.store, "early", "early"))
        await self.world.work_until_at_rest("signals", run_id)
        await self.world.once("late", lambda: flow.signal(run_id, self.world.store, "late", "late"))
        await self.world.work_until_ended("signals", run_id)


class Pausing(Scenario):
    """Paused from outside before it began, and by itself for somebody's approval."""

    name = "pausing"
    right: ClassVar[Any] = {"approved": 7}

    async def handler(self, ctx):
        await self.step(ctx, "before")
        answer = await ctx.pause("approval")
        await self.step(ctx, "after")
        return {"approved": answer}

    async def program(self):
        run_id = await self.world.trigger("pausing")
        flow, store = pgqrs.workflow("pausing"), self.world.store
        await self.world.once("pause", lambda: flow.pause(run_id, store))
        await self.world.once("begin", lambda: flow.resume(run_id, store))
        await self._rest(run_id)
        await self.world.once("approve", lambda: flow.resume(run_id, store, step="pause", data=7))
        await self._rest(run_id)
        await self.world.work_until_ended("pausing", run_id)

    async def _rest(self, run_id):
        """Until it waits for the approval, or has ended.

        A pause that was stalled may come late: nothing fences a person's word, and somebody takes it back.
        """
        while True:
            await self.world.work_until_at_rest("pausing", run_id)
            with self.world.unseen():
                run = await self.world.run("pausing", run_id)
            if run.status is not pgqrs.RunStatus.PAUSED or run.waiting_for == "approval":
                return
            await pgqrs.workflow("pausing").resume(run_id, self.world.store)
