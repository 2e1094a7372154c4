"""Ten-step runs by one and by two worker processes, in turns; and who is busy meanwhile."""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from typing import Any

import psycopg

import pgqrs
from benchmarks.scenarios.interleaved import in_turns
from benchmarks.scenarios.looking import LEFT, Look
from benchmarks.scenarios.place import Place, trigger
from benchmarks.scenarios.processes import children_of, cpu_seconds, parent_of, process


async def two_workers(place: Place) -> dict[str, Any]:
    busy: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    async with place.store() as store:

        async def by(processes: int) -> float:
            return await _by(processes, store, place, busy[processes])

        rates = await in_turns({"one": lambda: by(1), "two": lambda: by(2)})
    return {
        "count": place.count,
        "rate": rates["two"],
        "rate_one": rates["one"],
        "ratio": rates["two"] / rates["one"],
        "cpus": os.cpu_count(),
        **{
            f"{who}_cpu_percent_{name}": sum(each[who] for each in busy[count]) / len(busy[count])
            for name, count in (("one", 1), ("two", 2))
            for who in ("database", "workers")
        },
        "settings": f"concurrency {place.concurrency} each; ratio: two to one; 100 % CPU is one core",
    }


async def _by(processes: int, store: pgqrs.Store, place: Place, busy: list[dict[str, float]]) -> float:
    await trigger(store, place.count)
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(process(place, "10", place.concurrency)) for _ in range(processes)]
        server = _server(place)
        # Backends are born and die: those that are there now have the work.
        before = _used(started, server)

        async def begin() -> None:
            for each in started:
                each.begin()
            await asyncio.Event().wait()

        began = time.perf_counter()
        seconds = await Look(place, LEFT).seconds(begin(), until=0)
        after, passed = _used(started, server), time.perf_counter() - began
    busy.append({who: 100 * (after[who] - before[who]) / passed for who in after})
    return place.count / seconds


def _used(workers: list[Any], server: int | None) -> dict[str, float]:
    """CPU seconds so far; on SQLite the workers are the database."""
    backends = [] if server is None else [server, *children_of(server)]
    return {
        "workers": sum(cpu_seconds(each.pid) for each in workers),
        "database": sum(cpu_seconds(pid) for pid in backends),
    }


def _server(place: Place) -> int | None:
    """The postmaster: the parent of any backend."""
    if place.backend == "sqlite":
        return None
    with psycopg.connect(place.dsn) as connection:
        return parent_of(connection.info.backend_pid)
