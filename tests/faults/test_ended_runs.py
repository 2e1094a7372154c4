"""A run ends once, whatever was left behind."""

import pytest

import pgqrs
from pgqrs.db.runs import transitions


@pytest.mark.parametrize("status", ["SUCCESS", "ERROR", "CANCELLED"])
async def test_a_message_that_was_left_behind_does_not_start_its_run_again(store, status):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    calls = []

    async def handler(ctx, params):
        calls.append(status)
        if status == "ERROR":
            raise pgqrs.PermanentError("no")
        if status == "CANCELLED":
            await flow.cancel(ctx.run_id, store)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run_id = await flow.trigger().execute(store)
    await worker.run_until_idle()
    await transitions.revive(store.database, run_id)
    await worker.run_until_idle()
    await worker.close()
    # It should not be there at all, and the invariants say so.
    await transitions.delete_messages(store.database, [run_id])

    assert (await flow.get_run(run_id, store)).status == status
    assert len(calls) == 1
