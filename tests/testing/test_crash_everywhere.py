"""`crash_everywhere`: every boundary of a workflow, in this process and in real ones, and what it says when one is not survived."""

import asyncio
import re

import pytest

import pgqrs
from pgqrs.testing import DoesNotSurvive, crash_everywhere
from rig.lengths import by_length
from testing.orders import approve, basket, order, purchase


def test_every_boundary_of_a_workflow_is_found_and_survived():
    report = crash_everywhere(
        order, {"sku": "A1"}, drive=approve, check=lambda run, effects: effects["charge"] <= 1 + run.crashes
    )

    assert report.survived == report.boundaries >= 20
    assert [trial.repeated for trial in report.trials if trial.repeated] == [("charge",), ("ship",)]
    assert "kill before settlement.commit#1 (charge has begun)" in str(report)


async def write(_tx) -> int:
    return 3


@pgqrs.workflow
async def napping(ctx: pgqrs.PyWorkflow, number: int) -> int:
    await ctx.sleep(10 * number)
    await ctx.sleep(10)
    return await ctx.step("double", lambda: 2 * number)


async def transacting(ctx: pgqrs.PyWorkflow) -> int:
    await ctx.progress(1, 2)
    await ctx.transaction("write", write)
    return await ctx.step("work", lambda: 1)


async def spawning(ctx: pgqrs.PyWorkflow) -> int:
    return await (await ctx.spawn(napping, 2)).result()


async def mapping(ctx: pgqrs.PyWorkflow) -> list[int]:
    return await ctx.map(napping, by_length(short=[1, 2], long=[1, 2, 3]))


@pytest.mark.parametrize("mode", ["kill", "stall"])
@pytest.mark.parametrize("workflow", [transacting, spawning, mapping])
def test_transactions_and_children_survive_every_boundary(workflow, mode):
    report = crash_everywhere(workflow, modes=[mode])

    assert report.survived == report.boundaries >= 10, str(report)
    assert report.outcome.startswith("SUCCESS")


def test_a_workflow_that_is_parked_without_a_crash_does_not_survive():
    passes = []

    async def parked(ctx: pgqrs.PyWorkflow) -> None:
        passes.append(1)
        await ctx.step(f"work-{len(passes)}", lambda: None)
        await ctx.sleep(60)

    with pytest.raises(DoesNotSurvive, match=r"without a crash it is parked: .*asks for step 'work-2'"):
        crash_everywhere(parked, setup=passes.clear)


@pytest.mark.parametrize("mode", ["kill", "stall"])
@pytest.mark.parametrize("real", [False, True])
def test_a_real_process_dies_at_the_same_boundaries(real, mode):
    def local(ctx: pgqrs.PyWorkflow, sku: str) -> str:
        return ctx.step("pay", lambda: sku)

    report = crash_everywhere(local, "A1", real=real, modes=[mode])

    assert (report.boundaries, report.survived) == (8, 8)


@pytest.mark.backends("postgres", "turso")
def test_other_databases_take_part(backend, config):
    report = crash_everywhere(purchase, "A1", dsn=config.dsn, only="kill before settlement.commit#1")

    assert [(trial.verdict, trial.repeated) for trial in report.trials] == [("survived", ("charge",))]


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    ("workflow", "given", "drive", "inside"),
    [
        (order, "A1", approve, "stall before runs.recorded_steps#1"),
        (basket, ["A1", "A2"], None, "kill after triggers.trigger#1"),
    ],
)
def test_no_boundary_is_inside_a_transaction(backend, config, workflow, given, drive, inside):
    """Nothing is durable there; and whoever is stopped there keeps its locks, so that nobody can take over."""
    report = crash_everywhere(workflow, given, drive=drive, dsn=config.dsn, modes=["kill", "stall"], only=inside)

    assert [trial.verdict for trial in report.trials] == ["missed"]


def test_branches_may_divide_their_work_in_another_way_in_each_run():
    """The finding: branches that share a queue were called lost, because another one of them had taken an item."""
    runs = []

    async def share(ctx: pgqrs.PyWorkflow) -> list[int]:
        # In the place of timing: the same in every pass of a run, and another in the next run.
        first = 1 + len(runs) % 3

        async def branch(items: range) -> list[int]:
            return [await ctx.step("use", lambda item=item: item) for item in items]

        one, other = await asyncio.gather(branch(range(first)), branch(range(first, 4)))
        return [*one, *other]

    report = crash_everywhere(share, setup=lambda: runs.append(1))

    assert report.survived + report.missed == len(report.trials)
    assert report.survived >= 10


def test_a_step_that_a_branch_leaves_out_after_a_crash_is_caught():
    passes = []

    async def forgetful(ctx: pgqrs.PyWorkflow) -> None:
        passes.append(1)

        async def branch(items: int) -> None:
            for item in range(items):
                await ctx.step("use", lambda item=item: item)

        await asyncio.gather(branch(2), branch(2 if len(passes) == 1 else 1))

    with pytest.raises(DoesNotSurvive, match=r"it has the steps \['use@\*', 'use@\*', 'use@\*'\] on record and not"):
        crash_everywhere(forgetful, setup=passes.clear)


def test_a_step_that_a_branch_runs_once_more_after_a_crash_is_caught():
    passes = []

    async def eager(ctx: pgqrs.PyWorkflow) -> None:
        passes.append(1)

        async def branch(items: int) -> None:
            for item in range(items):
                await ctx.step("use", lambda item=item: item)

        await asyncio.gather(branch(2), branch(2 if len(passes) == 1 else 3))

    with pytest.raises(DoesNotSurvive, match=r"on record and not \['use@\*', 'use@\*', 'use@\*', 'use@\*'\]"):
        crash_everywhere(eager, setup=passes.clear)


async def test_a_workflow_that_gives_another_result_after_a_crash_is_caught():
    passes = []

    @pgqrs.workflow
    async def forgetful(ctx: pgqrs.PyWorkflow) -> int:
        passes.append(1)
        await ctx.step("work", lambda: None)
        return len(passes)

    with pytest.raises(DoesNotSurvive) as caught:
        crash_everywhere(forgetful, setup=passes.clear)

    said = str(caught.value)
    assert "forgetful does not survive kill before settlement.commit#1 (work has begun): it gave 2 and not 1" in said
    assert re.search(
        r"PGQRS_CRASH_AT='kill before settlement.commit#1' python -m pytest '.*::test_a_workflow_that", said
    )
    assert "run 1 of 'forgetful': SUCCESS, attempt 2 of 3" in said
    assert caught.value.report.failures[0].case.mode == "kill"


def test_a_workflow_that_may_not_be_tried_again_does_not_survive():
    with pytest.raises(DoesNotSurvive, match="it ended as ERROR 'worker_lost'"):
        crash_everywhere(purchase, "A1", max_attempts=1)


def test_a_check_that_says_no_fails_with_the_effects():
    with pytest.raises(DoesNotSurvive, match=r"(?s)the check said no.*bodies begun: \{'charge': 2\}"):
        crash_everywhere(
            purchase, "A1", check=lambda _, effects: effects["charge"] == 1, only="kill before settlement.commit#1"
        )


def test_what_cannot_be_done_is_said():
    with pytest.raises(pgqrs.ConfigError, match="no mode 'burn'"):
        crash_everywhere(purchase, "A1", modes=["burn"])
    with pytest.raises(pgqrs.ConfigError, match="names no crash"):
        crash_everywhere(purchase, "A1", only="somewhere")
    with pytest.raises(AssertionError, match="does not come to rest; give it a `drive`"):
        crash_everywhere(purchase, "A1", drive=lambda kit, _: kit.drain(), setup=None, delay=60)
