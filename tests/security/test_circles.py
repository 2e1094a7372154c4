"""Runs that are their own ancestors, as only rows changed by hand can be: whatever follows children comes to an end."""

import asyncio

import pytest

import pgqrs
from pgqrs.db.queries import Query
from pgqrs.db.runs import direct_calls

pytestmark = pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))

_ADOPT = Query("adopt", "update pgqrs_workflow_runs set parent_run_id = :parent where run_id = :child")


@pytest.fixture(params=[1, 2, 5], ids=lambda length: f"{length} runs")
async def circle(store, request):
    """Each the parent of the next, the last of the first."""
    await store.create_workflow("flow")
    run_ids = await pgqrs.workflow("flow").trigger_many([{}] * request.param).execute(store)
    for parent, child in zip(run_ids, [*run_ids[1:], run_ids[0]], strict=True):
        await store.database.execute(_ADOPT, parent=parent, child=child)
    return run_ids


async def test_the_descendants_of_a_run_in_a_circle_are_found_once_each(store, circle):
    async with asyncio.timeout(10):
        found = await direct_calls.live_descendants(store.database, circle[0])

    assert [each.run_id for each in found] == circle[1:]


async def test_a_circle_is_cancelled(store, circle):
    flow = pgqrs.workflow("flow")

    async with asyncio.timeout(10):
        await flow.cancel(circle[-1], store)

    assert [(await flow.get_run(run_id, store)).status for run_id in circle] == ["CANCELLED"] * len(circle)


async def test_a_circle_that_was_cancelled_is_retried(store, circle):
    flow = pgqrs.workflow("flow")
    await flow.cancel(circle[0], store)

    async with asyncio.timeout(10):
        await flow.retry_children(circle[0], store)

    assert [(await flow.get_run(run_id, store)).status for run_id in circle] == ["PENDING"] * len(circle)
