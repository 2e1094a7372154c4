"""Where and how much is measured, and what every scenario needs there: a store, messages, runs, a worker."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pgqrs

QUEUE, WORKFLOW = "tasks", "flow"
# The same for every peer.
PAYLOAD = {"n": 1, "name": "a task", "tags": ["a", "b"]}
# With 50, fewer checkpoints share a commit; 300 to 1,000 could not be told apart on a machine that others used too.
CONCURRENCY = {"postgres": 500, "sqlite": 500}
TRIGGERED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """What the command line gives a scenario."""

    dsn: str
    count: int
    seconds: float = 30.0
    # Two of them in one database are compared with each other: a PostgreSQL schema, or a file of its own.
    schema: str = "public"

    @property
    def backend(self) -> str:
        return "sqlite" if self.dsn.startswith("sqlite") else "postgres"

    @property
    def concurrency(self) -> int:
        return CONCURRENCY[self.backend]

    @asynccontextmanager
    async def store(self, **settings: Any) -> AsyncIterator[pgqrs.Store]:
        """With its schema, the queue and the workflow."""
        async with pgqrs.connect(self.dsn, install=True, schema=self.schema, **settings) as store:
            await store.create_queue(QUEUE)
            await store.create_workflow(WORKFLOW)
            yield store


def steps(count: int) -> Callable[..., Any]:
    """A handler of that many steps, one after the other, which do nothing."""

    async def nothing() -> None:
        pass

    async def handler(ctx: pgqrs.PyWorkflow) -> None:
        for number in range(count):
            await ctx.step(f"step_{number}", nothing)

    return handler


async def enqueue(store: pgqrs.Store, count: int) -> None:
    producer = await store.producer(QUEUE)
    for first in range(0, count, 1_000):
        await producer.enqueue_many([PAYLOAD] * min(1_000, count - first))


async def trigger(store: pgqrs.Store, count: int) -> None:
    for first in range(0, count, TRIGGERED_AT_ONCE):
        size = min(TRIGGERED_AT_ONCE, count - first)
        await pgqrs.workflow(WORKFLOW).trigger_many([None] * size).execute(store)


async def worker(store: pgqrs.Store, handler: Callable[..., Any], concurrency: int) -> pgqrs.Worker:
    """A worker that has not begun: whoever wants it polling awaits `poll_forever`."""
    return await pgqrs.consumer("bench", 0, WORKFLOW).handler(handler).concurrency(concurrency).create(store)
