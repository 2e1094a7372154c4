"""What a worker process costs: with nothing to do, after many runs, and while many runs sleep."""

import asyncio
from typing import Any

import psycopg

from benchmarks.scenarios.looking import AWAKE, LEFT, SUCCEEDED, Look, expect
from benchmarks.scenarios.place import Place, trigger
from benchmarks.scenarios.processes import Process, cpu_seconds, process, resident_mb

# Until connections are made and the poll interval has grown.
SETTLING_SECONDS = 5.0
# A backend tells of its transactions at most a second late.
REPORT_SECONDS = 1.5


async def idle(place: Place) -> dict[str, Any]:
    async with place.store():
        background = await _background(place)
        async with process(place, "1") as started:
            started.begin()
            figures = await _cost(place, started)
    if "queries_per_second" in figures:
        figures["queries_per_second"] -= background
        figures["background_per_second"] = background
    return {"count": 0, **figures, "settings": "defaults; transactions of pg_stat_database, without the server's own"}


async def _background(place: Place) -> float:
    """Transactions per second of the database while no worker is there: its own upkeep."""
    await asyncio.sleep(SETTLING_SECONDS)
    before = _transactions(place)
    await asyncio.sleep(place.seconds)
    return 0.0 if before is None else ((_transactions(place) or 0) - before) / place.seconds


async def memory(place: Place) -> dict[str, Any]:
    async with place.store() as store, process(place, "1", place.concurrency) as started:
        at_start = resident_mb(started.pid)
        await trigger(store, place.count)
        seconds = await _carried_out(place, started, LEFT)
        grown = resident_mb(started.pid)
    expect(place, SUCCEEDED, place.count)
    return {
        "count": place.count,
        "seconds": seconds,
        "rate": place.count / seconds,
        "rss_mb": grown,
        "rss_mb_at_start": at_start,
        "settings": f"one-step runs, concurrency {place.concurrency}",
    }


async def sleeping(place: Place) -> dict[str, Any]:
    async with place.store() as store, process(place, "sleep", place.concurrency) as started:
        at_start = resident_mb(started.pid)
        await trigger(store, place.count)
        seconds = await _carried_out(place, started, AWAKE)
        return {
            "count": place.count,
            "seconds": seconds,
            "rate": place.count / seconds,
            "rss_mb_at_start": at_start,
            **await _cost(place, started),
            "settings": f"ctx.sleep of 30 days, concurrency {place.concurrency}; rate: runs put to sleep",
        }


async def _carried_out(place: Place, started: Process, look: str) -> float:
    async def begin() -> None:
        started.begin()
        await asyncio.Event().wait()

    return await Look(place, look).seconds(begin(), until=0)


async def _cost(place: Place, started: Process) -> dict[str, float]:
    """Per second, while nothing happens for as long as the command line says."""
    await asyncio.sleep(SETTLING_SECONDS)
    queries, used = _transactions(place), cpu_seconds(started.pid)
    await asyncio.sleep(place.seconds)
    used = cpu_seconds(started.pid) - used
    await asyncio.sleep(REPORT_SECONDS)
    figures = {"cpu_percent": 100 * used / place.seconds, "rss_mb": resident_mb(started.pid)}
    if queries is not None:
        figures["queries_per_second"] = (_transactions(place) - queries) / (place.seconds + REPORT_SECONDS)
    return figures


def _transactions(place: Place) -> int | None:
    """Of the measured database, asked from another one, so that asking does not count. None on SQLite."""
    if place.backend == "sqlite":
        return None
    server, _, database = place.dsn.rpartition("/")
    with psycopg.connect(f"{server}/postgres") as connection:
        question = "select xact_commit + xact_rollback from pg_stat_database where datname = %s"
        return int(connection.execute(question, [database]).fetchone()[0])
