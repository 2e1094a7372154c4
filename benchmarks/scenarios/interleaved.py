"""Two or more ways of the same work in turns, in one measurement: a machine that gets slower gets slower for all."""

import statistics
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pgqrs
from benchmarks.scenarios.draining import process
from benchmarks.scenarios.looking import LEFT, Look
from benchmarks.scenarios.place import QUEUE, Place, enqueue, steps, trigger, worker

# Odd, and more than three: one round of a few seconds that the machine spoils must not be the median.
ROUNDS = 5

Way = Callable[[], Awaitable[float]]
Work = Coroutine[Any, Any, Any]


async def in_turns(ways: Mapping[str, Way], *, rounds: int = ROUNDS) -> dict[str, float]:
    """The median rate of each."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        # There and back: whoever goes first in one round goes last in the next.
        for name in list(ways) if number % 2 == 0 else reversed(list(ways)):
            rates[name].append(await ways[name]())
    return {name: statistics.median(values) for name, values in rates.items()}


async def drained(store: pgqrs.Store, place: Place, count: int, *, look: str = LEFT) -> float:
    """Messages per second: enqueues that many, and takes as many through the handler."""
    await enqueue(store, count)
    async with await store.consumer(QUEUE) as consumer:
        return await _rate(Look(place, look), process(consumer), count)


async def executed(store: pgqrs.Store, place: Place, count: int, *, look: str = LEFT) -> float:
    """One-step runs per second: triggers that many, and executes as many."""
    await trigger(store, count)
    made = await worker(store, steps(1), place.concurrency)
    return await _rate(Look(place, look), made.poll_forever(), count, stop=made.stop)


async def _rate(look: Look, work: Work, count: int, *, stop: Callable[[], None] | None = None) -> float:
    """Until nothing is left; or, where something always is, until that many more are done."""
    if look.question == LEFT:
        return count / await look.seconds(work, until=0, stop=stop)
    before = look.count()
    seconds = await look.seconds(work, until=before + count, stop=stop)
    return (look.answer - before) / seconds
