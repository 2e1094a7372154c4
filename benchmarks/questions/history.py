"""What the history of runs costs: one-step runs per second at each level of `audit`, and with an outbox."""

import statistics
import tempfile
import time
from pathlib import Path

import pgqrs
from benchmarks.databases import server

ROUNDS, RUNS, CONCURRENCY = 5, 2_000, 100
SETTINGS = {
    "audit=none": {"audit": "none"},
    "audit=changes": {"audit": "changes"},
    "audit=normal": {"audit": "normal"},
    "audit=full": {"audit": "full"},
    "normal, outbox=succeeded,failed": {"audit": "normal", "outbox": "succeeded,failed"},
}


async def handler(ctx, params):
    return await ctx.step("one", lambda: params)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pgqrs-bench-") as folder:
        async with server() as dsn:
            for name, place in (("postgres", dsn), ("sqlite", f"sqlite:///{Path(folder) / 'bench.db'}")):
                async with pgqrs.connect(place, install=True) as store:
                    await store.create_workflow("flow")
                await measure(name, place)


async def measure(name: str, dsn: str) -> None:
    """The levels in turn, several times over: a machine that gets slower gets slower for all of them."""
    rates: dict[str, list[float]] = {what: [] for what in SETTINGS}
    for _ in range(ROUNDS):
        for what, settings in SETTINGS.items():
            async with pgqrs.connect(dsn, **settings) as store:
                rates[what].append(await one_round(store))
    base = statistics.median(rates["audit=none"])
    for what, values in rates.items():
        rate = statistics.median(values)
        print(f"{name:<9} {what:<32} {rate:>7,.0f} runs/s  {rate / base:.2f}x of none")


async def one_round(store: pgqrs.Store) -> float:
    worker = await pgqrs.consumer("bench", 0, "flow").handler(handler).concurrency(CONCURRENCY).create(store)
    started = time.perf_counter()
    await pgqrs.workflow("flow").trigger_many(range(RUNS)).execute(store)
    await worker.run_until_idle()
    seconds = time.perf_counter() - started
    await worker.close()
    return RUNS / seconds
