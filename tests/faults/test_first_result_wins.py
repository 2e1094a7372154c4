"""A step's first recorded result wins for ever, even against the holder of the lease itself."""

import pgqrs
from pgqrs.db.runs import claims, settlement
from pgqrs.db.runs.records import RunWrite, StepRecord
from pgqrs.db.tables import workflows
from pgqrs.db.tables.messages import Source
from pgqrs.types import StepStatus


async def test_a_recorded_step_does_not_change_when_it_is_recorded_again(store):
    await store.create_workflow("flow")
    run_id = await pgqrs.workflow("flow").trigger(1).execute(store)
    queue_id = (await workflows.get(store.database, "flow")).queue_id
    [claim] = await claims.claim(store.database, [Source(queue_id, 30.0)], worker_id=1, batch=1)
    await settlement.commit(
        store.database, [RunWrite(claim.fence, (StepRecord("charge", 0, StepStatus.SUCCESS, output="1"),))]
    )

    for status, output in ((StepStatus.SUCCESS, "2"), (StepStatus.ERROR, None), (StepStatus.PENDING, None)):
        await settlement.commit(
            store.database, [RunWrite(claim.fence, (StepRecord("charge", 0, status, output=output, attempts=9),))]
        )

    [step] = await pgqrs.workflow("flow").steps(run_id, store)
    assert (step.status, step.output, step.attempts) == (StepStatus.SUCCESS, 1, 1)
