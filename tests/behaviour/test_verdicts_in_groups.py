"""What a group of errors means for its run: the same as its members, wherever the group was made."""

import asyncio
from datetime import timedelta

import pytest

import pgqrs


def raising(error):
    def body():
        raise error

    return body


async def in_steps(ctx, errors):
    async with asyncio.TaskGroup() as group:
        for number, error in enumerate(errors):
            group.create_task(ctx.step(f"s{number}", raising(error)))


async def in_branches(ctx, errors):
    barrier = asyncio.Barrier(len(errors))

    async def branch(error):
        await barrier.wait()
        raise error

    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(branch(error))


async def in_the_handler(ctx, errors):
    raise ExceptionGroup("several", errors)


async def in_a_nested_group(ctx, errors):
    first, *others = errors
    raise ExceptionGroup("outer", [ExceptionGroup("inner", [first]), *others])


async def in_one_step(ctx, errors):
    await ctx.step("s", raising(ExceptionGroup("several", errors)))


FORMS = [in_steps, in_branches, in_the_handler, in_a_nested_group, in_one_step]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("others", [[], [ValueError("odd")], [pgqrs.TransientError("busy")]], ids=len)
async def test_a_permanent_error_in_a_group_ends_the_run_at_once(run, form, others):
    async def handler(ctx):
        await form(ctx, [pgqrs.PermanentError("no such card"), *others])

    ended = await run(handler, max_attempts=3)

    assert (ended.status, ended.attempt) == ("ERROR", 1)


# Of steps in a TaskGroup, the first that fails cancels the others.
@pytest.mark.parametrize("form", [in_branches, in_the_handler, in_a_nested_group, in_one_step])
async def test_the_longest_delay_in_a_group_counts(run, clock, form):
    async def handler(ctx):
        if ctx.attempt == 1:
            errors = [pgqrs.TransientError("busy", retry_after=seconds) for seconds in (40, 900, 60)]
            await form(ctx, [*errors, ValueError("odd")])
        return ctx.attempt

    waiting = await run(handler)
    clock.advance(899)
    early = await run(handler, run_id=waiting.run_id)
    clock.advance(2)
    ended = await run(handler, run_id=waiting.run_id)

    assert (waiting.status, early.status) == ("RUNNING", "RUNNING")
    assert (ended.status, ended.output()) == ("SUCCESS", 2)


@pytest.mark.parametrize("form", [in_branches, in_the_handler, in_a_nested_group, in_one_step])
async def test_a_group_of_pauses_pauses_the_run(run, form):
    async def handler(ctx):
        await form(ctx, [pgqrs.PauseError("look at it"), pgqrs.PauseError("and at this")])

    paused = await run(handler)

    assert paused.status == "PAUSED"
    assert paused.waiting_for in ("look at it", "and at this")


async def test_a_pause_beside_another_error_is_tried_again_as_that_one(run):
    async def handler(ctx):
        await in_the_handler(ctx, [pgqrs.PauseError("look at it"), ValueError("odd")])

    failed = await run(handler, max_attempts=1)

    assert failed.status == "ERROR"


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [
        (pgqrs.RetryPolicy(retry_on=(OSError,)), 2),
        (pgqrs.RetryPolicy(retry_on=(TimeoutError,)), 1),
        (pgqrs.RetryPolicy(retry_on=(TimeoutError, ConnectionError)), 2),
        (pgqrs.RetryPolicy(retry_on=(ExceptionGroup,)), 2),
        (pgqrs.RetryPolicy(give_up_on=(ConnectionError,)), 1),
        (pgqrs.RetryPolicy(give_up_on=(KeyError,)), 2),
    ],
)
async def test_a_policy_looks_at_each_error_of_a_group(run, clock, policy, attempts):
    tries = []

    def body():
        tries.append(1)
        raise ExceptionGroup("several", [TimeoutError(), ExceptionGroup("inner", [ConnectionError()])])

    async def handler(ctx):
        await ctx.step("s", body, retry=policy.with_attempts(2))

    ended = await run(handler, max_attempts=1)
    clock.advance(3600)
    ended = await run(handler, run_id=ended.run_id)

    assert (ended.status, len(tries)) == ("ERROR", attempts)


async def test_a_transient_group_after_a_compensation_is_tried_again(run, clock):
    """As `raise TransientError` does: the handler asks for it."""

    async def handler(ctx):
        if ctx.attempt == 1:
            try:
                await ctx.step("charge", raising(ValueError("declined")))
            except ValueError as error:
                await ctx.step("refund", lambda: None)
                raise ExceptionGroup("later", [pgqrs.TransientError("busy"), pgqrs.TransientError("full")]) from error
        return "done"

    waiting = await run(handler)
    clock.advance(timedelta(hours=1).total_seconds())
    ended = await run(handler, run_id=waiting.run_id)

    assert (waiting.status, ended.status) == ("RUNNING", "SUCCESS")
