"""Signals that come at the worst moment."""

import pgqrs
from pgqrs import faults


async def test_a_signal_between_the_look_and_the_wait_wakes_the_run(store):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")

    async def handler(ctx, params):
        return await ctx.wait_for("go")

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run_id = await flow.trigger().execute(store)
    with faults.injected(faults.at("after", "claims.take_signal", lambda: flow.signal(run_id, store, "go", 1))):
        await worker.run_until_idle()

    assert (await flow.get_run(run_id, store)).output() == 1
    await worker.close()
