"""Restart: one transition, which reopens exactly what made the run fail."""

import asyncio
import concurrent.futures
import re

import pytest

import pgqrs
from pgqrs.db.runs import settlement, transitions
from pgqrs.db.runs.records import RunWrite, Suspended
from pgqrs.types import RunStatus, StepStatus
from rig.failures import LEASE_SECONDS, Failures, once_more, restarted_data, result, step

# Steps are recorded wherever a test wants them.
pytestmark = pytest.mark.breaks("I4")

ERROR, PAUSED, PENDING, SUCCESS = StepStatus.ERROR, StepStatus.PAUSED, StepStatus.PENDING, StepStatus.SUCCESS


@pytest.fixture
async def failures(store):
    return await Failures(store).begin()


@pytest.fixture
def flow(failures):
    return pgqrs.workflow("flow")


# -- one transition --------------------------------------------------------------------------------------


async def test_of_eight_concurrent_restarts_exactly_one_wins(store, flow, failures):
    run_id = await failures.failed(culprits=[])

    answers = await asyncio.gather(*(flow.restart(run_id, store) for _ in range(8)), return_exceptions=True)

    refused = [each for each in answers if each is not None]
    assert len(refused) == 7
    assert all(isinstance(each, pgqrs.InvalidTransition) for each in refused)
    assert all("was restarted already" in str(each) for each in refused)
    assert len(await restarted_data(store, run_id)) == 1


async def test_a_second_restart_does_not_take_the_run_from_its_worker(store, flow, failures):
    run_id = await failures.failed(step("charge", ERROR), culprits=["charge"])
    await flow.restart(run_id, store, actor="ann")
    [held] = await failures.claim_due()

    with pytest.raises(pgqrs.InvalidTransition, match=rf"run {run_id} was restarted already .*by ann.* is RUNNING"):
        await flow.restart(run_id, store, actor="bob")

    assert await settlement.commit(store.database, [RunWrite(held.fence, (step("charge", SUCCESS),))]) == {held.fence}


async def pending(failures, flow, store):
    return await flow.trigger().execute(store)


async def paused_by_a_person(failures, flow, store):
    run_id = await flow.trigger().execute(store)
    await flow.pause(run_id, store)
    return run_id


async def leased(failures, flow, store):
    return (await failures.running()).run_id


async def backing_off(failures, flow, store):
    claim = await failures.running()
    retry = Suspended(RunStatus.RUNNING, delay=300, count_attempt=True, last_error="OSError: away")
    assert await settlement.commit(store.database, [RunWrite(claim.fence, (), retry)])
    return claim.run_id


async def succeeded(failures, flow, store):
    run_id = await flow.trigger().execute(store)
    await failures.succeed(run_id)
    return run_id


async def deleted(failures, flow, store):
    run_id = await failures.failed(culprits=[])
    await flow.delete(run_id, store)
    return run_id


REFUSED = {
    pending: (r"run \d+ is PENDING", "a worker takes it when it is due"),
    paused_by_a_person: (r"run \d+ is PAUSED", "resume"),
    leased: (r"run \d+ is RUNNING", "cancel it first"),
    backing_off: (r"run \d+ is RUNNING", "resume"),
    succeeded: (r"run \d+ has ended in SUCCESS", "reset"),
    deleted: (r"run \d+ is deleted", "restore"),
}


@pytest.mark.parametrize("state", REFUSED, ids=lambda state: state.__name__)
async def test_a_restart_is_refused_with_the_state_and_the_fix(store, flow, failures, state):
    run_id = await state(failures, flow, store)
    before = await failures.rows(run_id)

    with pytest.raises(pgqrs.InvalidTransition) as refused:
        await flow.restart(run_id, store)

    said, fix = REFUSED[state]
    assert re.search(said, str(refused.value))
    assert fix in str(refused.value)
    assert await failures.rows(run_id) == before


async def test_a_run_that_backs_off_is_tried_at_once_by_resume(store, flow, failures):
    run_id = await backing_off(failures, flow, store)
    assert await failures.claim_due() == []

    await flow.resume(run_id, store)

    assert [claim.run_id for claim in await failures.claim_due()] == [run_id]


async def test_a_run_whose_worker_crashed_is_restarted_and_its_worker_fenced(store, flow, failures, clock):
    lost = await failures.running()
    await settlement.commit(store.database, [RunWrite(lost.fence, (step("caught", ERROR), step("done", SUCCESS)))])
    before = await failures.steps(lost.run_id)
    clock.advance(LEASE_SECONDS)

    await flow.restart(lost.run_id, store)

    assert await failures.status(lost.run_id) == "PENDING"
    assert await failures.steps(lost.run_id) == before
    assert await settlement.commit(store.database, [RunWrite(lost.fence, (step("late", SUCCESS),))]) == set()
    [claim] = await failures.claim_due()
    assert (claim.run_id, claim.lease.attempts) == (lost.run_id, 1)


async def test_a_cancelled_run_is_restarted_with_all_that_it_has_recorded(store, flow, failures):
    claim = await failures.running()
    recorded = (step("caught", ERROR), step("tried", PENDING, attempts=2), step("sleep", PAUSED, output="t"))
    await settlement.commit(store.database, [RunWrite(claim.fence, recorded)])
    await flow.cancel(claim.run_id, store)
    before = await failures.steps(claim.run_id)

    await flow.restart(claim.run_id, store)

    assert await failures.status(claim.run_id) == "PENDING"
    assert await failures.steps(claim.run_id) == before


@pytest.mark.parametrize("then", ["waits", "is at work", "has failed again"])
async def test_a_restart_whose_reply_was_lost_is_done_once(store, flow, failures, then):
    run_id = await failures.failed(culprits=[])
    db = store.database
    await transitions.restart(db, run_id, request="mine")
    if then != "waits":
        [claim] = await failures.claim_due()
    if then == "has failed again":
        await failures.end(claim, culprits=[])
    before = await failures.rows(run_id)

    await once_more(db, transitions.restart, run_id, request="mine")

    assert await failures.rows(run_id) == before
    assert len(await restarted_data(store, run_id)) == 1


async def test_a_retried_restart_that_another_call_overtook_is_refused(store, flow, failures):
    run_id = await failures.failed(culprits=[])
    await transitions.restart(store.database, run_id, request="another")

    with pytest.raises(pgqrs.InvalidTransition, match="was restarted already"):
        await once_more(store.database, transitions.restart, run_id, request="mine")


async def test_a_retried_restart_whose_first_try_was_not_carried_out_restarts(store, flow, failures):
    run_id = await failures.failed(culprits=[])

    await once_more(store.database, transitions.restart, run_id, request="mine")

    assert await failures.status(run_id) == "PENDING"


# -- healing ---------------------------------------------------------------------------------------------


async def test_restart_reopens_the_steps_whose_error_left_the_handler_and_nothing_else(store, flow, failures):
    run_id = await failures.failed(
        step("done", SUCCESS),
        step("declined", ERROR),
        step("wait_for:answer", ERROR),
        step("sleep", PAUSED, output="2030-01-01"),
        step("tried", PENDING, attempts=2),
        step("charge", ERROR),
        step("wait_for:stock", ERROR),
        culprits=["charge", "wait_for:stock"],
    )
    before = await failures.steps(run_id)

    await flow.restart(run_id, store)

    kept = {name: row for name, row in before.items() if name not in ("charge", "wait_for:stock")}
    assert await failures.steps(run_id) == kept
    assert await restarted_data(store, run_id) == [{"reopened": ["charge", "wait_for:stock"]}]


async def test_restart_reopens_nothing_when_the_handler_itself_raised(store, flow, failures):
    run_id = await failures.failed(step("declined", ERROR), step("sleep", PAUSED, output="t"), culprits=[])
    before = await failures.steps(run_id)

    await flow.restart(run_id, store)

    assert await failures.steps(run_id) == before
    assert await restarted_data(store, run_id) == [{"reopened": []}]


@pytest.mark.parametrize("last_error", ["worker_lost", "no_handler_registered"])
async def test_restart_reopens_nothing_when_no_step_was_at_fault(store, flow, failures, last_error):
    run_id = await failures.failed(step("declined", ERROR), step("tried", PENDING), last_error=last_error)
    before = await failures.steps(run_id)

    await flow.restart(run_id, store)

    assert await failures.steps(run_id) == before


async def test_a_failure_of_an_older_version_reopens_what_had_not_succeeded(store, flow, failures):
    """It does not say which steps were at fault; waits keep their time."""
    run_id = await failures.failed(
        step("done", SUCCESS), step("charge", ERROR), step("tried", PENDING), step("sleep", PAUSED, output="t")
    )

    await flow.restart(run_id, store)

    assert set(await failures.steps(run_id)) == {"done", "sleep"}


async def test_a_step_on_record_as_done_stays_though_it_is_named_as_the_culprit(store, flow, failures):
    run_id = await failures.failed(step("done", SUCCESS, output=["ERROR", "mine"]), culprits=["done", "unknown"])
    before = await failures.steps(run_id)

    await flow.restart(run_id, store)

    assert await failures.steps(run_id) == before


async def test_a_direct_call_heals_as_a_restart_does(store, flow, failures):
    run_id = await failures.failed(step("declined", ERROR), step("charge", ERROR), culprits=["charge"])

    claim = await failures.claim(run_id)

    assert set(claim.steps) == {"declined"}
    assert await restarted_data(store, run_id) == [{"reopened": ["charge"]}]


# -- results of children ---------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [False, True], ids=["error", "as older versions did"])
@pytest.mark.parametrize("child_is", ["restarted", "successful", "still failed"])
async def test_restart_reopens_the_result_of_the_child_that_made_it_fail(store, flow, failures, child_is, old):
    parent = await failures.running()
    [child] = await failures.spawn(parent, 1)
    await failures.end(await failures.claim(child), culprits=[])
    await failures.end(parent, result(child, old=old), culprits=[f"result:{child}"])
    if child_is != "still failed":
        await flow.restart(child, store)
    if child_is == "successful":
        await failures.succeed(child)

    await flow.restart(parent.run_id, store)

    assert set(await failures.steps(parent.run_id)) == {"spawn"}


async def test_the_failure_of_a_child_that_its_parent_caught_stays_caught(store, flow, failures):
    parent = await failures.running()
    [child] = await failures.spawn(parent, 1)
    await failures.end(await failures.claim(child), culprits=[])
    await failures.end(parent, result(child), step("report", ERROR), culprits=["report"])
    await flow.restart(child, store)

    await flow.restart(parent.run_id, store)

    assert set(await failures.steps(parent.run_id)) == {"spawn", f"result:{child}"}


async def test_of_an_older_failure_only_results_that_have_changed_are_reopened(store, flow, failures):
    parent = await failures.running()
    first, second, third = await failures.spawn(parent, 3)
    for child in (first, second):
        await failures.end(await failures.claim(child), culprits=[])
    await failures.succeed(third)
    await failures.end(
        parent,
        result(first, old=True),
        result(second, old=True),
        step(f"result:{third}", SUCCESS, output=["SUCCESS", 1]),
    )
    await flow.restart(first, store)

    await flow.restart(parent.run_id, store)

    assert set(await failures.steps(parent.run_id)) == {"spawn", f"result:{second}", f"result:{third}"}


async def test_all_failed_children_of_one_fan_out_are_healed_together(store, flow, failures):
    """`map` raises the first of their failures; the others of the same map were not caught either."""
    parent = await failures.running()
    first, second, third = await failures.spawn(parent, 3)
    [caught] = await failures.spawn(parent, 1, step_id="spawn#2")
    for child in (first, second, third, caught):
        await failures.end(await failures.claim(child), culprits=[])
    results = [result(child) for child in (first, second, third, caught)]
    await failures.end(parent, *results, culprits=[f"result:{first}"])
    for child in (first, second, caught):
        await flow.restart(child, store)

    await flow.restart(parent.run_id, store)

    # The third is still what it was.
    assert set(await failures.steps(parent.run_id)) == {
        "spawn", "spawn#2", f"result:{third}", f"result:{caught}",
    }  # fmt: skip


class Slow(TimeoutError):
    """A class of its own."""


@pytest.mark.parametrize(
    "error", [TimeoutError, Slow, asyncio.InvalidStateError, concurrent.futures.InvalidStateError, ConnectionError]
)
async def test_a_restart_runs_the_failed_step_of_a_plain_handler_again(run, clock, flow, store, error):
    works = False
    bodies = []

    def body():
        bodies.append(works)
        if not works:
            raise error("slow")
        return "done"

    def handler(ctx, params):
        return ctx.step("ask", body, retry=pgqrs.RetryPolicy(max_attempts=2, base=1, jitter=0))

    failed = await run(handler)
    clock.advance(60)
    failed = await run(handler, run_id=failed.run_id)
    works = True
    await flow.restart(failed.run_id, store)
    done = await run(handler, run_id=failed.run_id)

    assert failed.error["steps"] == ["ask"]
    assert (done.status, bodies) == ("SUCCESS", [False, False, True])
