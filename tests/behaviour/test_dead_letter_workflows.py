"""A failed run can trigger another workflow, in the transaction in which it fails."""

import pytest

import pgqrs
from pgqrs import faults


async def fail(ctx, params):
    raise pgqrs.PermanentError("no such card")


@pytest.fixture
async def rescue(store, flow):
    """What the dead letter's handler got."""
    got = []

    async def handler(ctx, params):
        got.append(params)

    await store.create_workflow("rescue")
    await store.create_workflow("flow", dead_letter="rescue")

    async def work():
        worker = await pgqrs.consumer("r", 0, "rescue").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()
        return got

    return work


async def test_a_failed_run_triggers_the_workflow_named_for_that(store, run, rescue):
    done = await run(fail, {"order": 7})
    [letter] = await rescue()
    [rescued] = await pgqrs.workflow("rescue").runs(store)

    assert letter.pop("error")["type"] == "PermanentError"
    assert letter == {
        "run_id": done.run_id,
        "workflow": "flow",
        "input": {"order": 7},
        "last_error": "PermanentError: no such card",
        "attempt": 1,
    }
    assert rescued.dead_letter_of == done.run_id


async def test_a_run_that_is_retried_or_succeeds_triggers_nothing(store, run, rescue):
    async def once(ctx, params):
        raise RuntimeError("again")

    async def fine(ctx, params):
        return 1

    await run(once)
    await run(fine)

    assert await rescue() == []


async def test_a_run_that_fails_again_after_a_restart_triggers_again(store, flow, run, rescue):
    done = await run(fail)
    await flow.restart(done.run_id, store)
    await run(fail, run_id=done.run_id)

    assert [letter["run_id"] for letter in await rescue()] == [done.run_id] * 2


async def test_dead_letters_that_fail_do_not_go_round_in_circles(store, flow, run):
    await store.create_workflow("rescue")
    await store.create_workflow("flow", dead_letter="rescue")
    await store.create_workflow("rescue", dead_letter="flow")
    worker = await pgqrs.worker("w").workflows({"flow": fail, "rescue": fail}).create(store)
    await flow.trigger().execute(store)

    await worker.run_until_idle()
    await worker.close()

    assert len(await flow.runs(store)) == 1
    assert len(await pgqrs.workflow("rescue").runs(store)) == 1


async def test_a_run_whose_workers_were_all_lost_is_a_dead_letter_too(store, flow, run, rescue, clock):
    from pgqrs.db.runs import claims
    from pgqrs.db.tables import queues
    from pgqrs.db.tables.messages import Source

    run_id = await flow.trigger(max_attempts=1).execute(store)
    queue_id = (await queues.get(store.database, "flow")).queue_id
    await claims.claim(store.database, [Source(queue_id, 30.0)], worker_id=1, batch=1)
    clock.advance(31)
    await run(fail, run_id=run_id)

    [letter] = await rescue()
    assert letter["last_error"] == "worker_lost"


async def test_a_run_without_a_handler_is_a_dead_letter_too(connect, config, clock):
    await connect()
    config = config.with_changes(no_handler_grace_seconds=0)

    async def rescue(ctx, params):
        return params["last_error"]

    async with pgqrs.connect_with(config, clock=clock) as store:
        await store.create_workflow("p.rescue")
        await store.create_workflow("p.unknown", dead_letter="p.rescue")
        await pgqrs.workflow("p.unknown").trigger().execute(store)
        worker = await pgqrs.worker("w", prefixes=["p."]).workflows({"p.rescue": rescue}).create(store)
        await worker.run_until_idle()
        await worker.close()
        [letter] = await pgqrs.workflow("p.rescue").runs(store)

    assert letter.output() == "no_handler_registered"


async def test_a_dead_letter_can_be_taken_back(store, flow, run, rescue):
    await store.create_workflow("flow")  # says nothing of it
    await run(fail)
    await store.create_workflow("flow", dead_letter=None)
    await run(fail)

    assert len(await rescue()) == 1


async def test_it_fails_with_its_dead_letter_or_not_at_all(store, flow, run, rescue):
    def refuse(point):
        if point.phase == "sql" and point.name in ("insert_run_messages", "trigger_runs"):
            raise RuntimeError("refused")

    run_id = await flow.trigger().execute(store)
    with faults.injected(refuse):
        assert (await run(fail, run_id=run_id)).status == "RUNNING"

    assert await pgqrs.workflow("rescue").runs(store) == []


async def test_it_is_declared_beside_the_code(store):
    got = []

    @pgqrs.workflow(name="orders.rescue")
    async def rescue(ctx, params):
        got.append(params["run_id"])

    @pgqrs.workflow(name="orders.charge", dead_letter="orders.rescue")
    async def charge(ctx, params):
        raise pgqrs.PermanentError("no")

    worker = await pgqrs.worker("w").workflows({"orders.charge": charge, "orders.rescue": rescue}).create(store)
    run_id = await pgqrs.workflow("orders.charge").trigger().execute(store)
    await worker.run_until_idle()
    await worker.close()

    assert got == [run_id]


async def test_a_dead_letter_that_cannot_be_is_refused(store, flow):
    with pytest.raises(pgqrs.WorkflowNotFound):
        await store.create_workflow("flow", dead_letter="nowhere")
    with pytest.raises(pgqrs.ConfigError, match="its own"):
        await store.create_workflow("flow", dead_letter="flow")
    with pytest.raises(pgqrs.ConfigError, match="its own"):
        pgqrs.workflow("flow", dead_letter="flow")
