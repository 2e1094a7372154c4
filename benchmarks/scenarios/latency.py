"""From the call of `trigger` to the first line of the handler, on a worker with defaults that has nothing to do.

On PostgreSQL the worker is another process; on SQLite it is in this one, as most programs on SQLite have it.
"""

import asyncio
import json
import statistics
import time
from typing import Any

import pgqrs
from benchmarks.scenarios.looking import SUCCEEDED, expect
from benchmarks.scenarios.place import WORKFLOW, Place, worker
from benchmarks.scenarios.processes import process

APART_SECONDS = 0.02
# The first ones make connections and prepare statements.
WARM = 10
PATIENCE_SECONDS = 60.0


async def latency(place: Place) -> dict[str, Any]:
    calls: dict[int, float] = {}
    starts: dict[int, float] = {}
    wanted = place.count + WARM

    async def send(store: pgqrs.Store) -> None:
        for number in range(wanted):
            await asyncio.sleep(APART_SECONDS)
            calls[number] = time.monotonic()
            await pgqrs.workflow(WORKFLOW).trigger(number).execute(store)

    async with place.store() as store, asyncio.timeout(PATIENCE_SECONDS + wanted * APART_SECONDS):
        if place.backend == "sqlite":
            await _within(store, send, starts, wanted)
        else:
            async with process(place, "tell") as started:
                started.begin()
                # It goes to sleep before the first one comes.
                await asyncio.sleep(1)
                sending = asyncio.create_task(send(store))
                while len(starts) < wanted:
                    number, moment = json.loads(await started.line())
                    starts[number] = moment
                await sending
    expect(place, SUCCEEDED, wanted)
    waits = sorted((starts[number] - calls[number]) * 1000 for number in range(WARM, wanted))
    quantiles = statistics.quantiles(waits, n=100, method="inclusive")
    return {
        "count": place.count,
        "samples": len(waits),
        "p50_ms": quantiles[49],
        "p99_ms": quantiles[98],
        "settings": f"defaults, {'in process' if place.backend == 'sqlite' else 'worker in a process of its own'}, "
        "one trigger every 20 ms",
    }


async def _within(store: pgqrs.Store, send: Any, starts: dict[int, float], wanted: int) -> None:
    all_started = asyncio.Event()

    async def tell(_ctx: pgqrs.PyWorkflow, number: int) -> None:
        starts[number] = time.monotonic()
        if len(starts) == wanted:
            all_started.set()

    made = await worker(store, tell, 10)
    polling = asyncio.create_task(made.poll_forever())
    await asyncio.sleep(1)
    await send(store)
    await all_started.wait()
    made.stop()
    await polling
