"""What most tests of workflows need: one workflow, and working until nothing is due."""

from dataclasses import dataclass

import pytest

import pgqrs


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.fixture
async def run(store, flow):
    """Triggers the workflow with a handler and works until nothing is due; gives the run."""
    workers = []

    async def work(handler, params=None, *, run_id=None, **options):
        if run_id is None:
            run_id = await flow.trigger(params, **options).execute(store)
        worker = await pgqrs.consumer("worker-1", 8080, "flow").handler(handler).create(store)
        workers.append(worker)
        await worker.run_until_idle()
        return await flow.get_run(run_id, store)

    yield work
    for worker in workers:
        await worker.close()


@dataclass(frozen=True)
class Seen:
    run: pgqrs.Run
    # What each pass has noted, in the order of the passes.
    passes: list


@pytest.fixture
async def passes(store, clock):
    """Executes a handler that sleeps once or more: each sleep ends a pass, and the next pass replays it."""

    async def execute(handler, times=2, between=None, max_attempts=1):
        noted = []

        async def noting(ctx):
            noted.append([])
            return await handler(ctx, noted[-1].append)

        await store.create_workflow("flow")
        run_id = await pgqrs.workflow("flow").trigger(max_attempts=max_attempts).execute(store)
        worker = await pgqrs.consumer("w", 0, "flow").handler(noting).create(store)
        for _ in range(times):
            await worker.run_until_idle()
            if between is not None and len(noted) == 1:
                await between(run_id)
            clock.advance(3600)
        await worker.close()
        return Seen(await pgqrs.workflow("flow").get_run(run_id, store), noted)

    return execute
