"""What a scenario is: a small program with a known right end.

A program is run by the process that is struck, and from the top again by each that recovers: commands that were
acknowledged are not given again, the rest is.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pgqrs
from pgqrs.types import RunStatus
from proof.crash.world import World


class Scenario:
    """`prepare` is done in peace; `program` is what faults strike; `check` looks at what came of it."""

    name: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {}
    # Effects that happen more than once without any fault, and how often.
    often: ClassVar[dict[str, int]] = {}
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

    def saw(self, ctx: Any, what: str, value: Any) -> None:
        """Note what the handler observes here: the same in every pass, and with every fault."""
        self.world.saw(f"{ctx.workflow} {what}", value, key=ctx.idempotency_key)

    async def ended_with(self, workflow: str, run_id: int, right: Any) -> None:
        run = await self.world.run(workflow, run_id)
        assert run.status is RunStatus.SUCCESS, f"run {run_id} of {workflow} is {run.status}: {run.last_error}"
        assert run.output() == right, f"run {run_id} of {workflow} returned {run.output()!r}, not {right!r}"

    async def count_runs(self, workflow: str, **wanted: Any) -> int:
        return len(await pgqrs.workflow(workflow).runs(self.world.store, limit=100, **wanted))


async def nothing() -> None:
    """A command that only the ledger knows of."""


async def rows(store: pgqrs.Store, sql: str) -> list[Any]:
    """Past the library's tables, or its words."""
    from pgqrs.db.queries import Query

    return await store.database.fetch(Query("proof", sql))
