"""Direct calls: `order("A1")` and `order.run("A1", key="order-A1")` run here, and no run is left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.api.inline import RunContext
from pgqrs.db.runs import claims, direct_calls, settlement
from pgqrs.db.runs.records import RunWrite, StepRecord
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import workers, workflows
from pgqrs.engine.runs import process_identity
from pgqrs.serialization import encode
from rig import forks

effects: list[str] = []
troubles: list[Exception] = []


@pytest.fixture(autouse=True)
def _nothing_happened():
    effects.clear()
    troubles.clear()


@pgqrs.step
async def charge(sku: str) -> str:
    effects.append(f"charge {sku}")
    return f"{sku} is paid for"


@pgqrs.step
async def ship(sku: str) -> str:
    effects.append(f"ship {sku}")
    if troubles:
        raise troubles.pop()
    return f"{sku} is on its way"


@pgqrs.workflow
async def order(sku: str) -> str:
    await charge(sku)
    return await ship(sku)


@pgqrs.workflow
def order_plainly(sku: str) -> str:
    charge(sku)
    return ship(sku)


async def call(flow, *args, **options):
    """The direct call of a workflow of either kind, from a coroutine."""
    if flow.handler.is_async:
        return await flow.run(*args, **options)
    return await asyncio.to_thread(flow.run, *args, **options)


@pytest.fixture(scope="module")
def dead_process():
    """What a process said of itself that has ended by now."""
    code = (
        "import json; from pgqrs.engine.runs import process_identity; print(json.dumps(process_identity.identity()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


async def abandoned(store, info, *, flow=order, key=None, steps=("charge",), value="A1"):
    """What a process leaves behind that is killed after these steps: its worker, its lease, a RUNNING run."""
    db = store.database
    found = await workflows.create(db, flow.name)
    text = flow.handler.encode_input((value,), {}, max_bytes=10_000)
    new = NewRuns(found.workflow_id, found.queue_id, [text], keys=[] if key is None else [key])
    begun = await direct_calls.begin(db, new, workflow=flow.name, info=info, lease_seconds=30.0)
    records = [StepRecord(name, n, pgqrs.StepStatus.SUCCESS, output='"recorded"') for n, name in enumerate(steps)]
    await settlement.commit(db, [RunWrite(begun.claim.fence, (each,)) for each in records])
    return begun.run_id


async def callers(store):
    return [each for each in await pgqrs.admin(store).workers() if each.name == "direct"]


# -- a key -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", [order, order_plainly], ids=["async", "plain"])
async def test_a_finished_run_is_not_executed_again_and_its_result_is_returned(store, flow):
    first = await call(flow, "A1", key="order-A1", store=store)
    second = await call(flow, "A1", key="order-A1", store=store)

    assert first == second == "A1 is on its way"
    assert effects == ["charge A1", "ship A1"]
    [run] = await flow.runs(store)
    assert (run.status, run.idempotency_key) == ("SUCCESS", "order-A1")
    assert await callers(store) == []


async def test_without_a_key_each_call_is_a_run(store):
    assert await order.run("A1", store=store) == await order.run("A1", store=store) == "A1 is on its way"
    assert len(await order.runs(store)) == 2


@dataclass
class Receipt:
    sku: str
    amount: int = 5


async def test_the_recorded_result_is_of_the_annotated_type(store):
    @pgqrs.workflow
    async def pay(sku: str) -> Receipt:
        return Receipt(sku)

    assert await pay.run("A1", key="k", store=store) == await pay.run("A1", key="k", store=store) == Receipt("A1")


async def test_another_input_for_the_same_key_is_refused(store):
    await order.run("A1", key="order-A1", store=store)

    with pytest.raises(pgqrs.IdempotencyConflict):
        await order.run("B2", key="order-A1", store=store)
    with pytest.raises(pgqrs.IdempotencyConflict):
        await call(order_plainly, "A1", key="order-A1", store=store)

    assert effects == ["charge A1", "ship A1"]


async def test_a_run_that_was_triggered_with_the_key_is_executed_by_the_call(store):
    await store.create_workflow("order")
    run_id = await order.trigger("A1", idempotency_key="order-A1").execute(store)

    assert await order.run("A1", key="order-A1", store=store) == "A1 is on its way"
    assert (await order.get_run(run_id, store)).status == "SUCCESS"


async def test_a_failed_run_continues_after_its_last_completed_step(store):
    troubles.append(ValueError("no van"))
    with pytest.raises(ValueError, match="no van"):
        await order.run("A1", key="order-A1", store=store)
    [failed] = await order.runs(store)

    assert failed.status == "ERROR"
    assert await order.run("A1", key="order-A1", store=store) == "A1 is on its way"
    assert effects == ["charge A1", "ship A1", "ship A1"]
    assert [each.run_id for each in await order.runs(store)] == [failed.run_id]


async def test_a_cancelled_run_stays_cancelled(store):
    await store.create_workflow("order")
    run_id = await order.trigger("A1", idempotency_key="order-A1").execute(store)
    await order.cancel(run_id, store, reason="out of stock")

    with pytest.raises(pgqrs.RunCancelled, match="out of stock"):
        await order.run("A1", key="order-A1", store=store)
    assert effects == []


def test_a_parameter_that_is_called_as_an_option_is_refused():
    @pgqrs.workflow
    def press(key: str) -> str:
        return key

    with pytest.raises(pgqrs.ConfigError, match="has a parameter 'key'"):
        press.run("a", key="k")


# -- a process that has ended ----------------------------------------------------------------------------


@pytest.mark.parametrize("flow", [order, order_plainly], ids=["async", "plain"])
async def test_the_next_call_with_the_key_continues_at_once_when_the_process_is_known_to_have_ended(
    store, dead_process, flow
):
    run_id = await abandoned(store, dead_process, flow=flow, key="order-A1")

    assert await call(flow, "A1", key="order-A1", store=store) == "A1 is on its way"
    assert effects == ["ship A1"]
    assert [(run.run_id, run.status) for run in await flow.runs(store)] == [(run_id, "SUCCESS")]


async def test_the_next_call_with_the_key_waits_for_the_lease_of_a_process_that_may_be_alive(store, clock):
    await abandoned(store, {"pid": 1}, key="order-A1")
    calling = asyncio.create_task(order.run("A1", key="order-A1", store=store))
    with faults.injected(faults.at("before", "direct_calls.seconds_until_due", (waits := asyncio.Event()).set)):
        await asyncio.wait_for(waits.wait(), 30)
    assert effects == []
    clock.advance(31)

    assert await asyncio.wait_for(calling, 30) == "A1 is on its way"
    assert effects == ["ship A1"]


async def test_two_calls_with_one_key_execute_it_once(store):
    first, second = await asyncio.gather(*(order.run("A1", key="order-A1", store=store) for _ in range(2)))

    assert first == second == "A1 is on its way"
    assert effects == ["charge A1", "ship A1"]


async def test_a_call_waits_for_the_worker_that_executes_its_run(store):
    begun, go_on = asyncio.Event(), asyncio.Event()

    @pgqrs.workflow
    async def slow(sku: str) -> str:
        begun.set()
        await go_on.wait()
        effects.append(sku)
        return f"{sku} by a worker"

    worker = await pgqrs.worker("w").workflows({"slow": slow}).create(store)
    await slow.trigger("A1", idempotency_key="k").execute(store)
    working = asyncio.create_task(worker.run_until_idle())
    await asyncio.wait_for(begun.wait(), 30)
    calling = asyncio.create_task(slow.run("A1", key="k", store=store))
    with faults.injected(faults.at("before", "direct_calls.seconds_until_due", go_on.set)):
        result = await asyncio.wait_for(calling, 30)
    await working
    await worker.close()

    assert (result, effects) == ("A1 by a worker", ["A1"])


async def test_a_call_raises_the_failure_of_a_run_that_failed_elsewhere(store, clock):
    await abandoned(store, {"pid": 1}, key="order-A1")
    calling = asyncio.create_task(order.run("A1", key="order-A1", store=store))
    with faults.injected(faults.at("before", "direct_calls.seconds_until_due", (waits := asyncio.Event()).set)):
        await asyncio.wait_for(waits.wait(), 30)
    [run] = await order.runs(store)
    ending = settlement.Ended(pgqrs.RunStatus.ERROR, error=encode({"type": "X", "message": "y"}), last_error="X: y")
    await store.database.perform(
        lambda db: settlement.end(db, [(run.run_id, ending)]), kind=settlement.Kind.UNIT, idempotent=False
    )

    with pytest.raises(pgqrs.ExecutionFailed, match="X: y"):
        await asyncio.wait_for(calling, 30)


async def test_the_next_call_finishes_what_a_dead_process_left_behind_without_a_key(store, dead_process):
    """Before, such a run stayed RUNNING for ever: each call began another one, and no worker serves this workflow."""
    left = await abandoned(store, dead_process)

    assert await order.run("B2", store=store) == "B2 is on its way"
    assert effects == ["charge B2", "ship B2", "ship A1"]
    run = await order.get_run(left, store)
    assert (run.status, run.output()) == ("SUCCESS", "A1 is on its way")
    assert await callers(store) == []


async def test_a_worker_finishes_what_a_dead_process_left_behind(store, clock, dead_process):
    left = await abandoned(store, dead_process)
    clock.advance(31)
    worker = await pgqrs.worker("w").workflows({"order": order}).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert (await order.get_run(left, store)).status == "SUCCESS"
    assert effects == ["ship A1"]


async def test_what_a_live_process_executes_is_not_taken(store):
    left = await abandoned(store, process_identity.identity())

    await order.run("B2", store=store)

    assert effects == ["charge B2", "ship B2"]
    assert (await order.get_run(left, store)).status == "RUNNING"


async def test_a_run_left_behind_that_fails_does_not_change_what_the_call_returns(store, dead_process):
    @pgqrs.workflow
    async def deliver(sku: str) -> str:
        if sku == "A1":
            raise ValueError("no van")
        return sku

    left = await abandoned(store, dead_process, flow=deliver, steps=())

    assert await deliver.run("B2", store=store) == "B2"
    assert (await deliver.get_run(left, store)).last_error == "ValueError: no van"


async def test_a_run_that_kills_each_process_ends_in_error(store, clock, dead_process):
    left = await abandoned(store, dead_process)
    for _ in range(2):
        other = await workers.register(store.database, queue_id=None, name="direct", port=0, info=dead_process)
        clock.advance(31)
        await claims.claim_due(store.database, [left], worker_id=other, lease_seconds=30.0)

    await order.run("B2", store=store)

    assert (await order.get_run(left, store)).last_error == "worker_lost"
    assert effects == ["charge B2", "ship B2"]


async def test_a_call_that_is_cancelled_leaves_its_run_to_the_next_one(store):
    begun = asyncio.Event()

    @pgqrs.workflow
    async def patient(sku: str) -> str:
        effects.append(sku)
        if len(effects) == 1:
            begun.set()
            await asyncio.Event().wait()
        return sku

    calling = asyncio.create_task(patient.run("A1", store=store))
    await asyncio.wait_for(begun.wait(), 30)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    [run] = await patient.runs(store)
    assert run.status == "PENDING"

    assert await patient.run("B2", store=store) == "B2"
    assert (await run.refresh()).status == "SUCCESS"
    assert effects == ["A1", "B2", "A1"]


# -- children --------------------------------------------------------------------------------------------


@pgqrs.workflow
async def grandchild(n: int) -> int:
    return n + 1


@pgqrs.workflow
async def child(n: int) -> int:
    return await grandchild(n) * 10


@pgqrs.workflow
async def parent(n: int) -> list:
    return [await child(n), *await asyncio.gather(child(n + 1), child(n + 2))]


@pgqrs.workflow
def plain_parent(n: int) -> list:
    return [child(n)]


async def test_a_call_executes_the_children_of_its_run_without_a_worker(store):
    assert await asyncio.wait_for(parent.run(1, store=store), 60) == [20, 30, 40]
    assert {run.status for run in [*await child.runs(store), *await grandchild.runs(store)]} == {"SUCCESS"}


async def test_a_plain_call_executes_children_without_a_worker(store):
    assert await asyncio.wait_for(asyncio.to_thread(plain_parent.run, 1, store=store), 60) == [20]


async def test_a_child_that_a_call_executes_is_retried_as_a_worker_would(live_store):
    @pgqrs.workflow(retry=pgqrs.RetryPolicy(base=0.01))
    async def flaky() -> str:
        effects.append("try")
        if len(effects) < 3:
            raise OSError("not yet")
        return "done"

    @pgqrs.workflow
    async def caller() -> str:
        return await flaky()

    assert await asyncio.wait_for(caller.run(store=live_store), 60) == "done"
    assert effects == ["try"] * 3


@pytest.mark.several_processes
async def test_a_tree_of_runs_whose_process_was_killed_in_a_child_is_continued_by_the_next_call(
    live_store, config, tmp_path
):
    """SIGKILL in the body of a grandchild's step: neither it, nor its parents, wait for a lease."""
    told = tmp_path / "told"

    @pgqrs.workflow
    async def leaf(ctx, sku: str) -> str:
        await ctx.step("first", lambda: _append(told, "first"))
        await ctx.step("second", lambda: _append(told, "second", kill=len(told.read_text().split()) == 2))
        return f"{sku} done"

    @pgqrs.workflow
    async def middle(sku: str) -> str:
        return await leaf(sku)

    @pgqrs.workflow
    async def root(ctx, sku: str) -> str:
        await ctx.step("begin", lambda: _append(told, "begin"))
        return await middle(sku)

    async def main():
        store = await pgqrs.connect_with(config)
        await root.run("A1", key="k", store=store)

    assert await forks.ended(forks.child(main)) == -signal.SIGKILL
    assert await asyncio.wait_for(root.run("A1", key="k", store=live_store), 20) == "A1 done"
    assert told.read_text().split() == ["begin", "first", "second", "second"]
    assert {len(await flow.runs(live_store)) for flow in (root, middle, leaf)} == {1}


def _append(file, word, *, kill=False):
    with file.open("a") as out:
        print(word, file=out)
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)


# -- the database goes away at the end -------------------------------------------------------------------


@pytest.fixture
async def brief_store(live_store, config):
    """A store with the shortest leases: for so long a record that cannot be written is tried again."""
    async with pgqrs.connect_with(config.with_changes(lease_seconds=1)) as store:
        yield store


away: list[bool] = []


@pytest.fixture
def outage():
    """While `away` holds something, every call to the database fails."""

    def fail(point):
        if away and point.phase == "before":
            raise pgqrs.ConnectionFailed("the database is away")

    with faults.injected(fail):
        yield
    away.clear()


def fail_in_an_outage():
    away.append(True)
    raise KeyError("no van")


@pgqrs.workflow
async def fails(sku: str) -> None:
    await charge(sku)
    fail_in_an_outage()


@pgqrs.workflow
def fails_plainly(sku: str) -> None:
    charge(sku)
    fail_in_an_outage()


@pytest.mark.parametrize("flow", [fails, fails_plainly], ids=["async", "plain"])
async def test_the_handlers_own_error_is_raised_when_it_cannot_be_recorded(brief_store, outage, flow):
    """Before, the caller heard only that the database was away."""
    with pytest.raises(KeyError, match="no van") as raised:
        await call(flow, "A1", key="k", store=brief_store)
    away.clear()

    [note] = raised.value.__notes__
    assert "could not record" in note
    assert "the database is away" in note
    assert isinstance(raised.value.__context__, pgqrs.ConnectionFailed)


async def test_a_result_that_cannot_be_recorded_is_not_returned(brief_store, outage):
    @pgqrs.workflow
    async def returns() -> str:
        away.append(True)
        return "done"

    with pytest.raises(pgqrs.ConnectionFailed):
        await returns.run(key="k", store=brief_store)
    away.clear()

    assert {run.status for run in await returns.runs(brief_store)} == {"RUNNING"}


async def test_a_recorded_result_is_returned_although_the_call_cannot_sign_off(store):
    def fail(point):
        if point == ("before", "direct_calls.leave"):
            raise pgqrs.ConnectionFailed("the database is away")

    with faults.injected(fail):
        assert await order.run("A1", key="k", store=store) == "A1 is on its way"


# -- a context in the wrong place ------------------------------------------------------------------------


async def test_a_step_called_with_the_context_of_a_run_outside_its_workflow_is_refused(store):
    context = await pgqrs.admin(store).create_workflow("order", "A1")
    assert isinstance(context, RunContext)

    with pytest.raises(pgqrs.ConfigError, match=rf"run {context.run_id}.*outside"):
        await charge(context, "A1")
    assert effects == []


async def test_a_step_called_with_the_context_of_a_run_that_has_ended_is_refused(store):
    kept = []

    @pgqrs.workflow
    async def keeps(ctx) -> None:
        kept.append(ctx)

    await keeps.run(store=store)

    with pytest.raises(pgqrs.InvalidTransition, match="ended"):
        await charge(kept[0], "A1")
    assert effects == []


async def test_a_step_called_with_the_context_of_a_plain_call_that_has_ended_is_refused(store):
    kept = []

    @pgqrs.workflow
    def keeps(ctx) -> None:
        kept.append(ctx)

    await call(keeps, store=store)

    with pytest.raises(pgqrs.InvalidTransition, match="ended"):
        charge(kept[0], "A1")
    assert effects == []


async def test_a_step_called_with_the_context_of_another_run_is_refused(store):
    begun, go_on = asyncio.Event(), asyncio.Event()
    kept = []

    @pgqrs.workflow
    async def keeps(ctx) -> None:
        kept.append(ctx)
        begun.set()
        await go_on.wait()

    @pgqrs.workflow
    async def other() -> None:
        await charge(kept[0], "A1")

    keeping = asyncio.create_task(keeps.run(store=store))
    await begun.wait()
    with pytest.raises(pgqrs.ConfigError, match="another run"):
        await other.run(store=store)
    go_on.set()
    await keeping
    assert effects == []
