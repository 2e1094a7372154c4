"""Retrying failed children: the run that failed because of them continues with their new results."""

import asyncio

import pytest

import pgqrs
from pgqrs import blocking
from pgqrs.api.operations.run_actions import act
from pgqrs.db.runs import transitions
from pgqrs.types import StepStatus
from rig.failures import Failures, failed_family, once_more, restarted_data, result, step

pytestmark = pytest.mark.breaks("I4")

ERROR, PAUSED, SUCCESS = StepStatus.ERROR, StepStatus.PAUSED, StepStatus.SUCCESS


@pytest.fixture
async def failures(store):
    return await Failures(store).begin()


@pytest.fixture
def flow(failures):
    return pgqrs.workflow("flow")


async def test_the_children_and_their_parent_are_restarted_in_one_call(store, flow, failures):
    parent, [child] = await failed_family(failures)

    restarted = await flow.retry_children(parent, store, actor="ann")

    assert restarted == [parent, child]
    assert [await failures.status(each) for each in restarted] == ["PENDING", "PENDING"]
    assert set(await failures.steps(parent)) == {"spawn"}
    assert set(await failures.steps(child)) == set()
    assert {claim.run_id for claim in await failures.claim_due()} == {parent, child}
    assert await restarted_data(store, parent) == [{"reopened": [f"result:{child}"], "children": [child]}]
    assert await restarted_data(store, child) == [{"reopened": ["work"], "retried_with": parent}]


async def test_every_failed_child_of_the_fan_out_is_retried(store, flow, failures):
    parent, children = await failed_family(failures, 3)

    assert await flow.retry_children(parent, store) == [parent, *children]
    assert set(await failures.steps(parent)) == {"spawn"}


async def test_a_child_whose_failure_was_caught_is_not_retried(store, flow, failures):
    parent = await failures.running()
    [guilty] = await failures.spawn(parent, 1)
    [caught] = await failures.spawn(parent, 1, step_id="spawn#2")
    for child in (guilty, caught):
        await failures.end(await failures.claim(child), culprits=[])
    await failures.end(parent, result(guilty), result(caught), culprits=[f"result:{guilty}"])

    assert await flow.retry_children(parent.run_id, store) == [parent.run_id, guilty]
    assert await failures.status(caught) == "ERROR"
    assert set(await failures.steps(parent.run_id)) == {"spawn", "spawn#2", f"result:{caught}"}


async def test_a_child_that_failed_because_of_its_own_children_is_healed_with_them(store, flow, failures):
    parent = await failures.running()
    [child] = await failures.spawn(parent, 1)
    middle = await failures.claim(child)
    first, second = await failures.spawn(middle, 2)
    await failures.end(await failures.claim(first), step("work", ERROR), culprits=["work"])
    await failures.succeed(second)
    await failures.end(
        middle, result(first), step(f"result:{second}", SUCCESS, output="fine"), culprits=[f"result:{first}"]
    )
    await failures.end(parent, result(child), culprits=[f"result:{child}"])

    assert await flow.retry_children(parent.run_id, store) == [parent.run_id, child, first]
    assert await failures.status(second) == "SUCCESS"
    assert set(await failures.steps(child)) == {"spawn", f"result:{second}"}


async def test_a_cancelled_child_is_restarted_with_the_children_that_were_cancelled_with_it(store, flow, failures):
    parent = await failures.running()
    [child] = await failures.spawn(parent, 1)
    middle = await failures.claim(child)
    [grandchild] = await failures.spawn(middle, 1)
    await flow.cancel(child, store)
    await failures.end(parent, result(child), culprits=[f"result:{child}"])

    assert await flow.retry_children(parent.run_id, store) == [parent.run_id, child, grandchild]


async def test_a_child_that_has_succeeded_since_is_only_asked_again(store, flow, failures):
    parent, [child] = await failed_family(failures)
    await flow.restart(child, store)
    await failures.succeed(child)

    assert await flow.retry_children(parent, store) == [parent]
    assert await failures.status(child) == "SUCCESS"
    assert set(await failures.steps(parent)) == {"spawn"}


async def test_a_child_that_failed_while_its_parent_waited_for_another_is_retried_too(store, flow, failures):
    parent = await failures.running()
    [guilty] = await failures.spawn(parent, 1)
    [waited] = await failures.spawn(parent, 1, step_id="spawn#2")
    for child in (guilty, waited):
        await failures.end(await failures.claim(child), culprits=[])
    await failures.end(parent, result(guilty), step(f"result:{waited}", PAUSED), culprits=[f"result:{guilty}"])

    assert await flow.retry_children(parent.run_id, store) == [parent.run_id, guilty, waited]


async def test_the_children_of_a_failure_of_an_older_version_are_retried(store, flow, failures):
    parent = await failures.running()
    [child] = await failures.spawn(parent, 1)
    await failures.end(await failures.claim(child), step("work", ERROR))
    await failures.end(parent, result(child, "CANCELLED", old=True), type="ExecutionFailed")

    assert await flow.retry_children(parent.run_id, store) == [parent.run_id, child]
    assert set(await failures.steps(parent.run_id)) == {"spawn"}


async def test_steps_that_failed_beside_the_child_run_again_as_well(store, flow, failures):
    parent = await failures.running()
    [child] = await failures.spawn(parent, 1)
    await failures.end(await failures.claim(child), culprits=[])
    await failures.end(parent, result(child), step("upload", ERROR), culprits=["upload", f"result:{child}"])

    await flow.retry_children(parent.run_id, store)

    assert set(await failures.steps(parent.run_id)) == {"spawn"}


async def test_a_run_that_did_not_fail_because_of_a_child_is_refused(store, flow, failures):
    run_id = await failures.failed(step("charge", ERROR), culprits=["charge"])

    with pytest.raises(pgqrs.InvalidTransition, match=f"did not fail because of a child.*pgqrs run restart {run_id}"):
        await flow.retry_children(run_id, store)
    assert set(await failures.steps(run_id)) == {"charge"}


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "PAUSED", "SUCCESS"])
async def test_a_run_that_has_not_failed_is_refused(store, flow, failures, status):
    """Its handler caught the failure, and is still at work: a child of it is restarted alone."""
    parent = await failures.running()
    [child] = await failures.spawn(parent, 1)
    await failures.end(await failures.claim(child), culprits=[])
    match status:
        case "PENDING":
            await flow.reset(parent.run_id, store)
        case "PAUSED":
            await flow.pause(parent.run_id, store)
        case "SUCCESS":
            await failures.succeed(parent.run_id)
    before = [await failures.rows(each) for each in (parent.run_id, child)]

    with pytest.raises(pgqrs.InvalidTransition, match=status):
        await flow.retry_children(parent.run_id, store)
    assert [await failures.rows(each) for each in (parent.run_id, child)] == before


@pytest.mark.parametrize("gone", ["deleted", "removed"])
async def test_a_child_that_cannot_be_restarted_refuses_all_of_it(store, flow, failures, gone):
    parent, [child, _] = await failed_family(failures, 2)
    await flow.delete(child, store)
    if gone == "removed":
        retention = pgqrs.retention(store)
        await retention.keep("deleted_runs", seconds=0)
        await retention.apply()
    before = await failures.rows(parent)

    expected = "restore it first" if gone == "deleted" else "no longer exists"
    with pytest.raises(pgqrs.InvalidTransition, match=f"child {child}.*{expected}"):
        await flow.retry_children(parent, store)
    assert await failures.rows(parent) == before


async def test_of_several_concurrent_calls_one_wins(store, flow, failures):
    parent, children = await failed_family(failures, 2)

    answers = await asyncio.gather(*(flow.retry_children(parent, store) for _ in range(6)), return_exceptions=True)

    assert sorted(map(str, [each for each in answers if isinstance(each, list)])) == [str([parent, *children])]
    refused = [each for each in answers if not isinstance(each, list)]
    assert all("was restarted already" in str(each) for each in refused)
    assert [len(await restarted_data(store, each)) for each in (parent, *children)] == [1, 1, 1]


async def test_a_call_whose_reply_was_lost_is_done_once(store, flow, failures):
    parent, children = await failed_family(failures, 2)
    await transitions.retry_children(store.database, parent, request="mine")
    before = [await failures.rows(each) for each in (parent, *children)]

    await once_more(store.database, transitions.retry_children, parent, request="mine")

    assert [await failures.rows(each) for each in (parent, *children)] == before


async def test_a_cancelled_run_continues_with_the_children_that_were_cancelled_with_it(store, flow, failures):
    parent = await failures.running()
    first, second = await failures.spawn(parent, 2)
    await failures.succeed(second)
    await flow.cancel(parent.run_id, store)

    assert await flow.retry_children(parent.run_id, store) == [parent.run_id, first]


async def test_it_is_an_action_of_any_workflow(store, failures):
    parent, [child] = await failed_family(failures)

    await act(store, parent, "retry-children", actor="ann")

    assert await failures.status(child) == "PENDING"


@pytest.mark.backends("sqlite", "postgres")
async def test_plain_code_can_do_it(store, config, failures):
    parent, [child] = await failed_family(failures)

    def retry():
        with blocking.connect(config.dsn, schema=config.schema) as plain:
            return blocking.workflow("flow").retry_children(parent, plain)

    assert await asyncio.to_thread(retry) == [parent, child]


# -- with handlers ---------------------------------------------------------------------------------------


async def test_a_fan_out_whose_children_failed_is_healed_by_one_call(store):
    await store.create_workflow("album")
    await store.create_workflow("thumbnail")
    album, well, resized, reported = pgqrs.workflow("album"), False, [], []

    async def thumbnail(ctx, picture: int) -> int:
        async def resize():
            resized.append(picture)
            if picture % 2 and not well:
                raise pgqrs.PermanentError("disk full")
            return picture * 10

        return await ctx.step("resize", resize)

    async def handler(ctx, pictures: list[int]) -> list[int]:
        await ctx.step("open", lambda: reported.append("open"))
        found = await ctx.map("thumbnail", pictures)
        await ctx.step("close", lambda: reported.append("close"))
        return found

    parents = await pgqrs.consumer("w", 1, "album").handler(handler).create(store)
    children = await pgqrs.consumer("c", 1, "thumbnail").handler(thumbnail).create(store)

    async def work():
        for worker in (parents, children, parents):
            await worker.run_until_idle()

    run_id = await album.trigger([1, 2, 3], max_attempts=1).execute(store)
    await work()
    failed = await album.get_run(run_id, store)
    assert failed.status == "ERROR"
    well = True
    await album.retry_children(run_id, store)
    await work()

    run = await album.get_run(run_id, store)
    assert (run.status, run.output()) == ("SUCCESS", [10, 20, 30])
    assert reported == ["open", "close"]
    assert sorted(resized) == [1, 1, 2, 3, 3]
    await parents.close()
    await children.close()
