"""Runs by one worker: of one step, of ten, and a parent with a thousand children. Triggered beforehand."""

from typing import Any

import pgqrs
from benchmarks.scenarios.looking import LEFT, SUCCEEDED, Look, expect
from benchmarks.scenarios.place import WORKFLOW, Place, steps, trigger, worker

CHILDREN = 1_000


async def runs_1(place: Place) -> dict[str, Any]:
    return await _runs(place, 1)


async def runs_10(place: Place) -> dict[str, Any]:
    return await _runs(place, 10)


async def _runs(place: Place, count: int) -> dict[str, Any]:
    async with place.store() as store:
        await trigger(store, place.count)
        started = await worker(store, steps(count), place.concurrency)
        seconds = await Look(place, LEFT).seconds(started.poll_forever(), until=0, stop=started.stop)
    expect(place, SUCCEEDED, place.count)
    return {"count": place.count, "seconds": seconds, "rate": place.count / seconds, "settings": settings(place)}


async def fan_out(place: Place) -> dict[str, Any]:
    """Children per second; parents of a thousand each, triggered together."""
    parents = max(1, place.count // CHILDREN)
    each = min(CHILDREN, place.count)

    async def parent(ctx: pgqrs.PyWorkflow) -> int:
        return len(await ctx.map("child", range(each)))

    async def child(_ctx: pgqrs.PyWorkflow, number: int) -> int:
        return number

    async with place.store() as store:
        await trigger(store, parents)
        built = pgqrs.worker("bench", concurrency=place.concurrency).workflows({WORKFLOW: parent, "child": child})
        started = await built.create(store)
        seconds = await Look(place, LEFT).seconds(started.poll_forever(), until=0, stop=started.stop)
    expect(place, SUCCEEDED, parents * (each + 1))
    count = parents * each
    return {"count": count, "seconds": seconds, "rate": count / seconds, "settings": settings(place)}


def settings(place: Place) -> str:
    return f"one worker process, concurrency {place.concurrency}, audit normal"
