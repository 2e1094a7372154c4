"""What most tests of workflows need: one workflow, and working until nothing is due."""

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
