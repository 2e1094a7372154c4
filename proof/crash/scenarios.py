"""Small programs with a known right end: what workflows do. Those of queues and clients are in `others.py`.

A program is run by the process that is struck, and from the top again by each that recovers: commands that were
acknowledged are not given again, the rest is.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pgqrs
from pgqrs.types import RunStatus
from proof.crash.world import World

PATIENT = pgqrs.RetryPolicy(max_attempts=20)


class Scenario:
    """`prepare` is done in peace; `program` is what faults strike; `check` looks at what came of it."""

    name: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {}
    # How many effects one fault may repeat: steps that are in flight at once.
    width: ClassVar[int] = 1
    # True where effects come with time: how many there are depends on how long recovery took.
    grows: ClassVar[bool] = False
    # True where the program handles messages itself: nobody tells it that its time was up before it goes on.
    by_hand: ClassVar[bool] = False
    # Done by the handler itself, outside of steps: whoever wakes up gets to do that before it asks for anything.
    outside: ClassVar[frozenset[str]] = frozenset()
    # True where plain code runs in threads, which stay.
    threads: ClassVar[bool] = False

    world: World

    @property
    def handlers(self) -> dict[str, Any]:
        return {self.name: self.handler}

    async def prepare(self, store: pgqrs.Store) -> None:
        for workflow in self.handlers:
            await store.create_workflow(workflow)

    async def program(self) -> None:
        run_id = await self.world.trigger(self.name)
        await self.world.work_until_ended(self.name, run_id)

    async def check(self) -> None:
        await self.ended_with(self.name, await self.world.trigger(self.name), self.right)

    # What the run must return.
    right: ClassVar[Any] = None

    async def handler(self, ctx: Any, *params: Any) -> Any:
        raise NotImplementedError

    def step(self, ctx: Any, name: str, value: Any = None, *, label: str = "", **options: Any) -> Any:
        """A step with an effect outside of the database."""

        async def body() -> Any:
            self.did(ctx, name, label)
            return value

        return ctx.step(name, body, **options)

    def did(self, ctx: Any, name: str, label: str = "") -> None:
        self.world.effect(f"{ctx.workflow}{label} {name}", key=ctx.idempotency_key)

    async def ended_with(self, workflow: str, run_id: int, right: Any) -> None:
        run = await self.world.run(workflow, run_id)
        assert run.status is RunStatus.SUCCESS, f"run {run_id} of {workflow} is {run.status}: {run.last_error}"
        assert run.output() == right, f"run {run_id} of {workflow} returned {run.output()!r}, not {right!r}"

    async def count_runs(self, workflow: str, **wanted: Any) -> int:
        return len(await pgqrs.workflow(workflow).runs(self.world.store, limit=100, **wanted))


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


class Transactional(Scenario):
    """A step whose effect is in the database, and one outside of it on each side."""

    name = "transactional"
    right: ClassVar[Any] = [1, 2]

    async def prepare(self, store):
        await super().prepare(store)
        await self._payments(store, "drop table if exists {}")
        await self._payments(store, "create table {} (amount integer not null)")

    async def handler(self, ctx):
        async def pay(tx):
            await tx.execute(f"insert into {self._table(self.world.store)} (amount) values (5)")
            tx.emit("paid", {"amount": 5})
            return (await tx.fetch(f"select count(*) from {self._table(self.world.store)}"))[0][0]

        await self.step(ctx, "before")
        first = await ctx.transaction("pay", pay)
        await self.step(ctx, "between")
        return [first, await ctx.transaction("pay", pay)]

    async def check(self):
        await super().check()
        store = self.world.store
        paid = await self._payments(store, "select count(*) from {}")
        assert paid[0][0] == 2, f"paid {paid[0][0]} times, not twice"
        told = await _rows(store, "select count(*) from pgqrs_outbox_events")
        assert told[0][0] == 2, f"{told[0][0]} events, not two"

    @staticmethod
    def _table(store):
        return f'"{store.config.schema}".payments' if store.config.backend == "postgres" else "payments"

    async def _payments(self, store, sql):
        return await _rows(store, sql.format(self._table(store)))


class Restarted(Scenario):
    """Fails for good, is restarted by a person, and later reset to its second step."""

    name = "restarted"
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
        await self.world.once("repair", _nothing)
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
        await self.world.once("repair", _nothing)
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


async def _nothing() -> None:
    """A command that only the ledger knows of."""


async def _rows(store: pgqrs.Store, sql: str) -> list[Any]:
    """Past the library's tables, or its words."""
    from pgqrs.db.queries import Query

    return await store.database.fetch(Query("proof", sql))
