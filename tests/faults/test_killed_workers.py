"""Workers that die, one or all of them: their runs go on elsewhere, or end in ERROR."""

import asyncio
import ctypes
import faulthandler
import os
import resource
import signal

import pytest

import pgqrs
from rig import forks


@pytest.fixture
async def flow(live_store):
    await live_store.create_workflow("flow")
    return pgqrs.workflow("flow")


def segfault():
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def out_of_memory():
    # What the kernel does to whoever has taken the last of it.
    os.kill(os.getpid(), signal.SIGKILL)


DEATHS = {1: (lambda: os._exit(3), 3), 2: (segfault, -signal.SIGSEGV), 3: (out_of_memory, -signal.SIGKILL)}


@pytest.mark.row("B1.3", "B1.13", "B1.14")
@pytest.mark.several_processes
async def test_a_run_that_kills_its_workers_ends_in_error_and_the_others_do_not(live_store, flow, config, tmp_path):
    keys = tmp_path / "keys"

    async def handler(ctx, n: int):
        if n == 0:
            with keys.open("a") as file:
                file.write(f"{ctx.attempt} {ctx.idempotency_key}\n")
            await ctx.step("die", die, ctx.attempt)
        return n

    async def die(attempt):
        DEATHS[attempt][0]()

    poison = await flow.trigger(0, max_attempts=3).execute(live_store)
    for _, code in DEATHS.values():
        assert await forks.ended(forks.worker(config, handler)) == code
    others = await flow.trigger_many([1, 2, 3]).execute(live_store)
    last = forks.worker(config, handler)
    run = await flow.get_run(poison, live_store)
    with pytest.raises(pgqrs.ExecutionFailed, match="worker_lost"):
        await run.result(30)
    results = [await (await flow.get_run(each, live_store)).result(30) for each in others]
    os.kill(last, signal.SIGKILL)
    await forks.ended(last)

    assert (run.status, run.attempt) == ("ERROR", 3)
    assert results == [1, 2, 3]
    attempts, given = zip(*map(str.split, keys.read_text().splitlines()), strict=True)
    assert attempts == ("1", "2", "3")
    assert len(set(given)) == 1
    assert given[0].startswith(f"run-{poison}-")


@pytest.mark.row("B1.12")
@pytest.mark.several_processes
async def test_when_all_workers_are_killed_at_once_the_next_ones_go_on(live_store, flow, config, tmp_path):
    ready = tmp_path / "begun"

    async def waits(ctx, n: int):
        with ready.open("a") as file:
            file.write(f"{n}\n")
        await asyncio.Event().wait()

    async def handler(ctx, n: int):
        return n

    run_ids = await flow.trigger_many(range(8)).execute(live_store)
    team = [forks.worker(config, waits) for _ in range(3)]
    async with asyncio.timeout(30):
        while not ready.exists() or len(ready.read_text().split()) < 8:
            await asyncio.sleep(0.01)
    for each in team:
        os.kill(each, signal.SIGKILL)
        await forks.ended(each)
    team = [forks.worker(config, handler) for _ in range(2)]
    results = [await (await flow.get_run(each, live_store)).result(30) for each in run_ids]
    for each in team:
        os.kill(each, signal.SIGKILL)
        await forks.ended(each)

    assert results == list(range(8))
