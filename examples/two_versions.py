"""Seed 000, section 11: versions live in names. First blue-green, then a gradual rollout."""

import asyncio
import random
from collections import Counter

import pgqrs


@pgqrs.workflow(name="process_file_v1")
async def process_v1(ctx: pgqrs.Context, key: str) -> str:
    return await ctx.step("process", lambda: f"{key} by v1")


@pgqrs.workflow(name="process_file_v2")
async def process_v2(ctx: pgqrs.Context, key: str) -> str:
    checked = await ctx.step("check", lambda: key)
    return await ctx.step("process", lambda: f"{checked} by v2")


async def is_drained(store: pgqrs.Store, workflow: str) -> bool:
    """Nothing waits, nothing is at work: its workers can go."""
    queue = await pgqrs.admin(store).queue_metrics(workflow)
    return queue.ready + queue.scheduled + queue.leased == 0


async def blue_green(store: pgqrs.Store) -> None:
    blue = await pgqrs.consumer("blue", 8080, "process_file_v1").handler(process_v1).create(store)
    old = await process_v1.trigger("a.txt").execute(store)

    # 1. Workers of the new version join; 2. triggers use the new name from now on.
    green = await pgqrs.consumer("green", 8081, "process_file_v2").handler(process_v2).create(store)
    new = await process_v2.trigger("b.txt").execute(store)
    print(f"v1 drained: {await is_drained(store, 'process_file_v1')}")

    # 3. What began under the old version ends under it; 4. then its workers go.
    await asyncio.gather(blue.run_until_idle(), green.run_until_idle())
    print(f"v1 drained: {await is_drained(store, 'process_file_v1')}")
    await blue.close()
    await green.close()
    print((await process_v1.get_run(old, store)).output())
    print((await process_v2.get_run(new, store)).output())


async def gradual_rollout(store: pgqrs.Store) -> None:
    both = {"process_file_v1": process_v1, "process_file_v2": process_v2}
    worker = await pgqrs.worker("worker-1").workflows(both).create(store)
    dice = random.Random(7)  # noqa: S311 - a fixed seed: this prints the same every time
    routed: Counter[str] = Counter()
    for n in range(100):
        name = "process_file_v1" if dice.random() < 0.9 else "process_file_v2"  # 10 % of the traffic: the canary
        await pgqrs.workflow(name).trigger(f"{n}.txt").execute(store)
        routed[name] += 1
    await worker.run_until_idle()
    await worker.close()
    print(f"rollout: {routed['process_file_v1']} by v1, {routed['process_file_v2']} by v2")
    print(f"all done: {await is_drained(store, 'process_file_v1') and await is_drained(store, 'process_file_v2')}")


async def main() -> None:
    async with pgqrs.connect(install=True) as store:
        for name in ("process_file_v1", "process_file_v2"):
            await store.create_workflow(name)
        await blue_green(store)
        await gradual_rollout(store)


if __name__ == "__main__":
    asyncio.run(main())
