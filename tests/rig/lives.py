"""A database in which everything has happened: every kind of life that a run, a message or an event may have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pgqrs
from pgqrs.api.store import Store
from pgqrs.db.runs import claims
from pgqrs.db.tables.messages import Source
from pgqrs.db.tables.queues import get as find_queue

Life = Callable[[Store, pgqrs.ManualClock], Awaitable[None]]


async def live(store: Store, clock: pgqrs.ManualClock) -> None:
    """One after the other, on a store whose clock is set by hand."""
    for life in LIVES.values():
        await life(store, clock)


async def steps(store: Store, clock: pgqrs.ManualClock) -> None:
    """Plain steps, a loop, branches, a transactional step, an event; the run has attributes and a key."""

    async def handler(ctx: Any, params: Any) -> Any:
        one = await ctx.step("one", lambda: 1)
        loop = [await ctx.step("each", lambda n=n: n) for n in range(3)]
        both = await ctx.gather(ctx.step("left", lambda: "l"), ctx.step("right", lambda: "r"))
        await ctx.transaction("kept", _nothing)
        await ctx.emit("steps.done", {"n": one})
        await ctx.progress(1, 1)
        return [one, loop, both]

    async with _serving(store, "steps", handler) as work:
        await pgqrs.workflow("steps").trigger(1, idempotency_key="only", attributes={"who": "ann"}).execute(store)
        await work()
    await pgqrs.dispatcher(store).to(lambda event: None).run_until_idle()


async def failures(store: Store, clock: pgqrs.ManualClock) -> None:
    """Retried and well again; failed and restarted; failed for good, with a dead letter; a step's own retries."""
    left = {"flaky": 1, "broken": 1, "step": 1}

    def fails(name: str) -> int:
        if left.get(name, 1) > 0:
            left[name] = left.get(name, 1) - 1
            raise pgqrs.PermanentError(name) if name == "broken" else RuntimeError(name)
        return 1

    async def handler(ctx: Any, name: str) -> int:
        await ctx.step("before", lambda: name)
        retry = pgqrs.RetryPolicy(max_attempts=2) if name == "step" else None
        return await ctx.step("try", fails, name, retry=retry)

    async with _serving(store, "mourned", lambda ctx, letter: None) as bury:
        await store.create_workflow("failures", dead_letter="mourned")
        async with _serving(store, "failures", handler) as work:
            flow = pgqrs.workflow("failures")
            for name in ("flaky", "step", "never"):
                await flow.trigger(name, max_attempts=1 if name == "never" else None).execute(store)
            left["never"] = 99
            broken = await flow.trigger("broken").execute(store)
            await work()
            await flow.restart(broken, store)
            await work()
            clock.advance(600)
            await work()
        await bury()


async def waits(store: Store, clock: pgqrs.ManualClock) -> None:
    """Asleep; waiting for a signal that came before, that comes after, and in vain; paused by itself and by a person."""

    async def handler(ctx: Any, kind: str) -> Any:
        match kind:
            case "sleep":
                return await ctx.sleep(60)
            case "signal":
                return [await ctx.wait_for("go"), await ctx.wait_for("go")]
            case "in vain":
                try:
                    return await ctx.wait_for("go", timeout=5)
                except pgqrs.WaitTimeout:
                    return "nobody came"
            case _:
                return await ctx.pause("somebody's word")

    async with _serving(store, "waits", handler) as work:
        flow = pgqrs.workflow("waits")
        asleep, signalled, _, paused = [
            await flow.trigger(kind).execute(store) for kind in ("sleep", "signal", "in vain", "pause")
        ]
        await flow.signal(signalled, store, "go", 1)
        await work()
        await flow.signal(signalled, store, "go", 2)
        await flow.signal(signalled, store, "other", 3)
        await flow.resume(paused, store, step="pause", data="yes")
        await flow.pause(asleep, store, reason="a person says so")
        clock.advance(100)
        await work()
        await flow.resume(asleep, store)
        await work()
        # And those that wait on.
        for kind in ("sleep", "signal", "pause"):
            await flow.trigger(kind).execute(store)
        await work()


async def families(store: Store, clock: pgqrs.ManualClock) -> None:
    """A parent with children that succeed and fail; one that is cancelled with its children; one that waits on."""

    async def child(ctx: Any, kind: str) -> str:
        if kind == "fails":
            raise pgqrs.PermanentError(kind)
        if kind == "waits":
            await ctx.sleep(1_000_000)
        return kind

    async def parent(ctx: Any, kinds: list[str]) -> list[str]:
        children = [await ctx.spawn("child", kind) for kind in kinds]
        results = []
        for each in children:
            try:
                results.append(await each.result())
            except pgqrs.ExecutionFailed as error:
                results.append(str(error))
        return results

    async with _serving(store, "child", child) as work_child, _serving(store, "parent", parent) as work_parent:
        flow = pgqrs.workflow("parent")
        cancelled = [
            await flow.trigger(kinds).execute(store) for kinds in (["fine", "fails"], ["fine", "waits"], ["waits"])
        ][1]
        for _ in range(3):
            await work_parent()
            await work_child()
        await flow.cancel(cancelled, store, reason="no more")


async def edits(store: Store, clock: pgqrs.ManualClock) -> None:
    """Cancelled before it began; deleted, and restored; reset from the start, and from a step; called directly."""

    async def handler(ctx: Any, n: int) -> int:
        first = await ctx.step("first", lambda: n)
        return first + await ctx.step("second", lambda: n)

    @pgqrs.workflow(name="direct")
    async def direct(ctx: Any, n: int) -> int:
        first = await ctx.step("first", lambda: n)
        if tries.pop():
            raise RuntimeError("once")
        return first

    tries = [False, True]
    async with _serving(store, "edits", handler) as work:
        flow = pgqrs.workflow("edits")
        ids = [await flow.trigger(n).execute(store) for n in range(6)]
        await flow.cancel(ids[0], store)
        await flow.delete(ids[1], store, reason="a mistake")
        await flow.delete(ids[2], store)
        await flow.restore(ids[2], store)
        await work()
        await flow.reset(ids[3], store)
        await flow.reset(ids[4], store, from_step="second")
        await flow.delete(ids[5], store)
        await work()
    held = await pgqrs.admin(store).create_workflow("direct", 1)
    try:
        await direct(held, 1)
    except RuntimeError:
        await direct(held, 1)


async def schedules(store: Store, clock: pgqrs.ManualClock) -> None:
    """Slots that fired, were skipped, wait."""

    async def slow(ctx: Any) -> None:
        await ctx.sleep(100)

    async with _serving(store, "slow", slow) as work:
        made = pgqrs.schedules(store)
        await made.create("skips", "slow", every=60)
        await made.create("queues", "slow", every=60, overlap="queue")
        for _ in range(4):
            clock.advance(60)
            await work()


async def queues(store: Store, clock: pgqrs.ManualClock) -> None:
    """Messages archived, handed back, deleted, dead, replayed, held; a lease that ran out."""
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    await producer.enqueue_many([{"n": n} for n in range(12)], max_attempts=2)
    async with await store.consumer("tasks") as consumer:
        first, second, third, *_ = await consumer.dequeue(6)
        await consumer.archive(first.id)
        await consumer.release(second.id)
        await consumer.delete(third.id)
        clock.advance(100)
        for _ in range(2):
            await consumer.dequeue(12)
            clock.advance(100)
        letters = await pgqrs.admin(store).dead_letters("tasks")
        await pgqrs.admin(store).replay("tasks", [letters[0].id])
        [again] = await consumer.dequeue(1)
        await consumer.extend(again.id, 60)


async def outbox(store: Store, clock: pgqrs.ManualClock) -> None:
    """Events published, dead, sent after all, waiting behind one that fails."""

    async def handler(ctx: Any, kind: str) -> None:
        await ctx.emit(f"{kind}.first")
        await ctx.emit(f"{kind}.second")

    def refuse(event: pgqrs.OutboxEvent) -> None:
        if event.type == "bad.first" and refusing:
            raise RuntimeError("not this one")

    refusing = [True]
    async with _serving(store, "outbox", handler) as work:
        for kind in ("good", "bad"):
            await pgqrs.workflow("outbox").trigger(kind).execute(store)
        await work()
    await pgqrs.dispatcher(store).to(refuse).max_attempts(1).run_until_idle()
    admin = pgqrs.admin(store)
    await admin.outbox.replay([each.event_id for each in await admin.outbox.dead()])
    refusing.clear()


async def held(store: Store, clock: pgqrs.ManualClock) -> None:
    """A run in the hands of a worker that says nothing."""
    await store.create_workflow("held")
    await pgqrs.workflow("held").trigger().execute(store)
    queue = await find_queue(store.database, "held")
    claimed = await claims.claim(store.database, [Source(queue.queue_id, 30.0)], worker_id=1, batch=1)
    assert len(claimed) == 1


LIVES: dict[str, Life] = {
    life.__name__: life for life in (steps, failures, waits, families, edits, schedules, queues, outbox, held)
}


@asynccontextmanager
async def _serving(store: Store, name: str, handler: Callable[..., Any]) -> Any:
    """The workflow with a worker; gives a function that works until nothing is due."""
    await store.create_workflow(name)
    worker = await pgqrs.consumer("w", 0, name).handler(handler).create(store)
    try:
        yield worker.run_until_idle
    finally:
        await worker.close()


async def _nothing(_transaction: Any) -> None:
    """A transactional step that needs no table of the user's."""
