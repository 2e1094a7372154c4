"""What a progress note after each of 1,000 steps adds to a wake-up, which replays them all."""

import asyncio
import statistics
import tempfile
import time

import pgqrs
from benchmarks.databases import server

STEPS, ROUNDS = 1_000, 7


async def noted(ctx) -> int:
    for n in range(STEPS):
        await ctx.step("work", _nothing)
        await ctx.progress(n + 1, STEPS)
    for _ in range(ROUNDS):
        await ctx.wait_for("go")
    return STEPS


async def quiet(ctx) -> int:
    for _ in range(STEPS):
        await ctx.step("work", _nothing)
    for _ in range(ROUNDS):
        await ctx.wait_for("go")
    return STEPS


async def _nothing() -> None:
    """A step's body; its record is all that matters."""


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await _measured("sqlite", f"sqlite:///{folder}/app.db")
    async with server() as dsn:
        await _measured("postgres", dsn)


async def _measured(name: str, dsn: str) -> None:
    async with pgqrs.connect(dsn, install=True) as store:
        handlers = {"noted": noted, "quiet": quiet}
        runs = {}
        for flow in handlers:
            await store.create_workflow(flow)
            runs[flow] = await pgqrs.workflow(flow).trigger().execute(store)
        worker = await pgqrs.worker("w", prefixes=list(handlers)).workflows(handlers).create(store)
        await worker.run_until_idle()
        took: dict[str, list[float]] = {flow: [] for flow in handlers}
        for _ in range(ROUNDS):
            for flow, run_id in runs.items():
                await pgqrs.workflow(flow).signal(run_id, store, "go")
                began = time.perf_counter()
                await worker.run_until_idle()
                took[flow].append(time.perf_counter() - began)
        await worker.close()
        medians = {flow: statistics.median(times) for flow, times in took.items()}
        print(
            f"{name}: a wake-up with {STEPS:,} steps takes {medians['quiet'] * 1000:.1f} ms, "
            f"with a note after each {medians['noted'] * 1000:.1f} ms: {medians['noted'] / medians['quiet']:.2f}x"
        )


if __name__ == "__main__":
    asyncio.run(main())
