"""What becomes of runs: cancelled, restarted, failed for good, parents of others."""

from __future__ import annotations

from typing import Any, ClassVar

import pgqrs
from pgqrs.types import RunStatus
from proof.crash.scenarios.scenario import Scenario, nothing


class Cancelled(Scenario):
    """While it waits; its child is cancelled with it."""

    name = "cancelled"

    @property
    def handlers(self):
        return {"cancelled": self.handler, "cancelled_child": self.child}

    async def handler(self, ctx):
        await self.step(ctx, "before")
        child = await ctx.spawn("cancelled_child")
        await child.result()
        await self.step(ctx, "never")

    async def child(self, ctx):
        await ctx.wait_for("nothing")
        await self.step(ctx, "never")

    async def program(self):
        run_id = await self.world.trigger("cancelled")
        await self.world.work_until_at_rest("cancelled", run_id)
        await self.world.once("cancel", lambda: pgqrs.workflow("cancelled").cancel(run_id, self.world.store))
        await self.world.work_until_ended("cancelled", run_id)

    async def check(self):
        for workflow in self.handlers:
            assert await self.count_runs(workflow, status=RunStatus.CANCELLED) == 1, workflow
            assert await self.count_runs(workflow) == 1, workflow


class CancelledAtWork(Scenario):
    """In the middle of a step: the canceller's word is the last."""

    name = "cancelled_at_work"

    async def handler(self, ctx):
        async def cancel():
            self.did(ctx, "cancel")
            flow = pgqrs.workflow("cancelled_at_work")
            await self.world.once("cancel", lambda: flow.cancel(ctx.run_id, self.world.store))

        await self.step(ctx, "before")
        await ctx.step("cancel", cancel)
        await self.step(ctx, "never")

    async def check(self):
        run = await self.world.run(self.name, await self.world.trigger(self.name))
        assert run.status is RunStatus.CANCELLED, f"it is {run.status}: {run.last_error}"


class Children(Scenario):
    name = "children"
    width = 4
    right: ClassVar[Any] = [[1, 4, 9], 16]

    @property
    def handlers(self):
        return {"children": self.handler, "child": self.child}

    async def handler(self, ctx):
        squares = await ctx.map("child", [1, 2, 3])
        await self.step(ctx, "between")
        last = await ctx.spawn("child", 4)
        return [squares, await last.result()]

    async def child(self, ctx, params):
        return await self.step(ctx, "square", params * params, label=f" {params}")

    async def check(self):
        await super().check()
        assert await self.count_runs("child", status=RunStatus.SUCCESS) == await self.count_runs("child") == 4


class Restarted(Scenario):
    """Fails for good, is restarted by a person, and later reset to its second step."""

    name = "restarted"
    often: ClassVar[dict[str, int]] = {"restarted second": 2, "restarted third": 2}
    # A reset that was carried out, but not heard of, is given again: then both steps are.
    width = 3
    right = "done"

    async def handler(self, ctx):
        await self.step(ctx, "first")
        await self.step(ctx, "second")
        if not any(line["name"] == "repair" for line in self.world.ledger.lines("acknowledged")):
            raise pgqrs.PermanentError("broken")
        return await self.step(ctx, "third", "done")

    async def program(self):
        flow, store = pgqrs.workflow("restarted"), self.world.store
        run_id = await self.world.trigger("restarted")
        await self.world.work_until_ended("restarted", run_id)
        await self.world.once("repair", nothing)
        await self.world.once("restart", lambda: flow.restart(run_id, store))
        await self.world.work_until_ended("restarted", run_id)
        await self.world.once("reset", lambda: flow.reset(run_id, store, from_step="second"))
        await self.world.work_until_ended("restarted", run_id)


class Healed(Scenario):
    """Two of three children fail, and their parent with them; a person repairs the cause and retries them."""

    name = "healed"
    width = 4
    right: ClassVar[Any] = [1, 4, 9]

    @property
    def handlers(self):
        return {"healed": self.handler, "part": self.part}

    async def handler(self, ctx):
        await self.step(ctx, "before")
        try:
            squares = await ctx.map("part", [1, 2, 3])
        except pgqrs.ExecutionFailed as failed:
            raise pgqrs.PermanentError("a part failed") from failed
        await self.step(ctx, "after")
        return squares

    async def part(self, ctx, params):
        await self.step(ctx, "prepare", label=f" {params}")
        if params != 2 and not any(line["name"] == "repair" for line in self.world.ledger.lines("acknowledged")):
            raise pgqrs.PermanentError("broken")
        return await self.step(ctx, "square", params * params, label=f" {params}")

    async def program(self):
        run_id = await self.world.trigger("healed")
        await self.world.work_until_ended("healed", run_id)
        await self.world.once("repair", nothing)
        flow, store = pgqrs.workflow("healed"), self.world.store
        await self.world.once("retry", lambda: flow.retry_children(run_id, store))
        await self.world.work_until_ended("healed", run_id)

    async def check(self):
        await super().check()
        assert await self.count_runs("part", status=RunStatus.SUCCESS) == await self.count_runs("part") == 3


class DeadLetter(Scenario):
    """A run that fails for good hands what it was given to another workflow, once."""

    name = "failing"

    @property
    def handlers(self):
        return {"failing": self.handler, "mourner": self.mourn}

    async def prepare(self, store):
        await store.create_workflow("mourner")
        await store.create_workflow("failing", dead_letter="mourner")

    async def handler(self, ctx):
        await self.step(ctx, "before")
        raise pgqrs.PermanentError("broken")

    async def mourn(self, ctx):
        await self.step(ctx, "mourn")

    async def program(self):
        await self.world.trigger("failing")

        async def has_mourned():
            return bool(await self.count_runs("mourner", status=RunStatus.SUCCESS))

        await self.world.work_until(has_mourned)

    async def check(self):
        run = await self.world.run("failing", await self.world.trigger("failing"))
        assert run.status is RunStatus.ERROR, f"it is {run.status}"
        assert await self.count_runs("mourner", status=RunStatus.SUCCESS) == await self.count_runs("mourner") == 1
