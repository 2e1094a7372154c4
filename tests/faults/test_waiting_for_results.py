"""Waiting for a result asks the database few questions."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults


@pytest.mark.row("B8.13")
async def test_waiting_for_a_result_costs_few_questions(live_store):
    await live_store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    runs = [await flow.get_run(each, live_store) for each in await flow.trigger_many([1] * 20).execute(live_store)]
    with faults.recorded() as points:
        waiting = [asyncio.create_task(run.result(1.2)) for run in runs]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(each) for each in outcomes} == {pgqrs.WaitTimeout}
    # One for all of them, now and then; each that comes asks at once.
    assert sum(point.phase == "sql" for point in points) <= 25
