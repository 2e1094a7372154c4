"""Seed 002: a workflow runs here, fails or crashes, and is called again with the same context."""

import asyncio

import pytest

import pgqrs
from pgqrs import PyWorkflow
from pgqrs.decorators import step, workflow


@pytest.fixture
async def test_dsn(config, connect, monkeypatch):
    """The seed's own fixture name; the store that it opens and does not close is closed here."""
    opened = []
    really_connect = pgqrs.connect_with

    async def connect_with(given):
        opened.append(await really_connect(given))
        return opened[-1]

    monkeypatch.setattr(pgqrs, "connect_with", connect_with)
    yield config.dsn
    for store in opened:
        await store.close()


@pytest.fixture
def schema(config):
    return config.schema


@pytest.fixture
def admin(live_store):
    return pgqrs.admin(live_store)


# -- the reproduction, as written ------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_workflow_error_restart(test_dsn, schema):
    config = pgqrs.Config(test_dsn, schema=schema)
    store = await pgqrs.connect_with(config)
    admin = pgqrs.admin(store)
    await admin.install()

    wf_ctx = await admin.create_workflow("error_restart_test", {})

    run_count = [0]

    @step
    async def step_1(ctx: PyWorkflow, cfg: dict) -> dict:
        return {"step": 1}

    @workflow
    async def test_workflow(ctx: PyWorkflow, cfg: dict) -> dict:
        result = await step_1(ctx, cfg)

        # Fail on first run, succeed on second
        if run_count[0] == 0:
            run_count[0] += 1
            raise RuntimeError("Simulated transient error")

        return result

    # First run - fails
    try:
        await test_workflow(wf_ctx, {})
        assert False, "Expected error"  # noqa: B011, PT015 - as written
    except RuntimeError:
        pass

    # Second run - should succeed but currently fails with:
    # "Workflow X is in terminal ERROR state"
    result = await test_workflow(wf_ctx, {})
    assert result["step"] == 1


# -- "current broken behaviour", as it should be ---------------------------------------------------------


@pytest.fixture
def pipeline():
    """The three steps of the report; the second one fails once."""
    calls = []
    result = {"done": True}

    @step
    async def step_1(ctx: PyWorkflow, cfg: dict) -> None:
        calls.append("step_1")

    @step
    async def step_2(ctx: PyWorkflow, cfg: dict) -> None:
        calls.append("step_2")
        if calls.count("step_2") <= cfg.get("failures", 1):
            raise OSError("hits an error")

    @step
    async def step_3(ctx: PyWorkflow, cfg: dict) -> None:
        calls.append("step_3")

    @workflow
    async def my_workflow(ctx: PyWorkflow, cfg: dict) -> dict:
        await step_1(ctx, cfg)
        await step_2(ctx, cfg)
        # Process crashes here or hits an error
        await step_3(ctx, cfg)  # Never reached
        return result

    my_workflow.calls = calls
    return my_workflow


async def test_error_to_running_completed_steps_are_skipped(live_store, admin, pipeline):
    my_workflow, config = pipeline, {"a": 1}
    # Create and start workflow
    wf_ctx = await admin.create_workflow("my_workflow", config)

    # First run - fails/crashes
    try:  # noqa: SIM105 - as written
        await my_workflow(wf_ctx, config)
    except Exception:  # noqa: BLE001 - as written
        pass  # Process crashed or error occurred
    failed = await pgqrs.workflow("my_workflow").get_run(wf_ctx.run_id, live_store)
    steps = [(s.step_id, s.status) for s in await failed.steps()]

    # Try to restart
    result = await my_workflow(wf_ctx, config)

    assert (failed.status, failed.error["type"]) == ("ERROR", "OSError")
    assert steps == [("step_1", "SUCCESS"), ("step_2", "ERROR")]
    assert result == {"done": True}
    assert my_workflow.calls == ["step_1", "step_2", "step_2", "step_3"]
    done = await failed.refresh()
    assert (done.status, done.error, done.last_error) == ("SUCCESS", None, None)


async def test_running_to_running_after_a_crash(live_store, admin, pipeline):
    from pgqrs.db.runs import claims, settlement
    from pgqrs.db.runs.records import RunWrite, StepRecord

    config = {"failures": 0}
    wf_ctx = await admin.create_workflow("my_workflow", config)
    # What a process leaves behind that was killed after its first step: a lease, RUNNING, one step.
    claim = await claims.claim_run(live_store.database, wf_ctx.run_id, worker_id=1, lease_seconds=30.0)
    one = StepRecord("step_1", 0, pgqrs.StepStatus.SUCCESS, output="null")
    await settlement.commit(live_store.database, [RunWrite(claim.fence, (one,))])
    crashed = await pgqrs.workflow("my_workflow").get_run(wf_ctx.run_id, live_store)

    result = await pipeline(wf_ctx, config)

    assert crashed.status == "RUNNING"
    assert result == {"done": True}
    assert pipeline.calls == ["step_2", "step_3"]


async def test_a_run_may_fail_more_often_than_max_attempts_and_still_be_called_again(live_store, admin, pipeline):
    config = {"failures": 5}
    wf_ctx = await admin.create_workflow("my_workflow", config)
    for _ in range(5):
        with pytest.raises(OSError, match="hits an error"):
            await pipeline(wf_ctx, config)

    assert await pipeline(wf_ctx, config) == {"done": True}
    assert pipeline.calls.count("step_1") == 1


async def test_a_process_that_crashes_more_often_than_max_attempts_can_still_go_on(live_store, admin, pipeline):
    from pgqrs.db.runs import claims

    wf_ctx = await admin.create_workflow("my_workflow", {"failures": 0})
    for _ in range(5):
        await claims.claim_run(live_store.database, wf_ctx.run_id, worker_id=1, lease_seconds=30.0)

    assert await pipeline(wf_ctx, {"failures": 0}) == {"done": True}


async def test_success_is_the_only_state_that_refuses(live_store, admin, pipeline):
    wf_ctx = await admin.create_workflow("my_workflow", {"failures": 0})
    await pipeline(wf_ctx, {"failures": 0})
    calls = list(pipeline.calls)

    with pytest.raises(pgqrs.AlreadyCompleted, match=str(wf_ctx.run_id)):
        await pipeline(wf_ctx, {"failures": 0})

    assert pipeline.calls == calls


async def test_the_argument_counts_even_when_the_run_was_created_without_one(admin):
    @workflow
    async def my_workflow(ctx: PyWorkflow, cfg: dict) -> dict:
        return cfg

    wf_ctx = await admin.create_workflow("my_workflow")

    assert await my_workflow(wf_ctx, {"a": 1}) == {"a": 1}


async def test_a_context_may_have_any_name_when_it_is_annotated(admin):
    @step
    async def double(wf: PyWorkflow, n: int) -> int:
        return n * 2

    @workflow
    async def my_workflow(wf: PyWorkflow, n: int) -> int:
        return await double(wf, n)

    assert await my_workflow(await admin.create_workflow("my_workflow", 21), 21) == 42


async def test_the_long_term_verbs_reset_and_get_status(live_store, admin, pipeline):
    flow = pgqrs.workflow("my_workflow")
    wf_ctx = await admin.create_workflow("my_workflow", {"failures": 0})
    await pipeline(wf_ctx, {"failures": 0})
    assert (await flow.get_run(wf_ctx.run_id, live_store)).status == "SUCCESS"

    await flow.reset(wf_ctx.run_id, live_store)
    assert (await flow.get_run(wf_ctx.run_id, live_store)).status == "PENDING"

    assert await pipeline(wf_ctx, {"failures": 0}) == {"done": True}
    assert pipeline.calls == ["step_1", "step_2", "step_3"] * 2


async def test_the_workaround_of_plain_orchestrators_still_works(pipeline):
    """Steps called outside a run are plain function calls: here nothing is recorded, and nothing refuses."""

    @step
    async def step_1(cfg: dict) -> dict:
        return {"step": 1}

    async def my_workflow_orchestrator(cfg: dict) -> dict:
        return await step_1(cfg)

    assert await asyncio.wait_for(my_workflow_orchestrator({}), 5) == {"step": 1}
