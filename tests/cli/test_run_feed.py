"""What is told of runs while they run."""

import re

import pytest

import pgqrs
from pgqrs.cli.run_feed import RunFeed

flow = pgqrs.workflow("flow")
RETRY = pgqrs.RetryPolicy(max_attempts=2, base=5.0, jitter=0.0)


@pytest.fixture
async def narrator(store):
    await store.create_workflow("flow")
    narrator = RunFeed(store)
    await narrator.begin()
    return narrator


async def _work(store, handler, name="w"):
    worker = await pgqrs.consumer(name, 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()


async def test_steps_and_the_end_are_told_once(store, narrator):
    async def handler(ctx, params):
        await ctx.step("one", lambda: 1)
        await ctx.step("two", lambda: 2)
        return {"n": 3}

    run_id = await flow.trigger(None).execute(store)
    assert await narrator.look() == [f"run {run_id}  flow   triggered"]
    await _work(store, handler)

    assert await narrator.look() == [f'run {run_id}  flow   one ok   two ok   done: {{"n":3}}']
    assert await narrator.look() == []


async def test_a_retry_says_what_failed_and_when_it_is_tried_again(store, narrator, clock):
    tries = []

    async def flaky():
        tries.append(1)
        if len(tries) == 1:
            raise TimeoutError("the bank did not answer")

    async def handler(ctx, params):
        await ctx.step("charge", flaky, retry=RETRY)

    run_id = await flow.trigger(None).execute(store)
    await _work(store, handler)
    assert await narrator.look() == [f"run {run_id}  flow   charge failed: TimeoutError, retry in 5 s"]
    clock.advance(6)
    await _work(store, handler, name="w")

    [line] = await narrator.look()
    assert "charge ok (attempt 2)   done" in line


async def test_waits_are_told(store, narrator):
    async def handler(ctx, params):
        answer = await ctx.wait_for("approval")
        await ctx.sleep(60)
        return answer

    run_id = await flow.trigger(None).execute(store)
    await _work(store, handler)
    assert await narrator.look() == [f"run {run_id}  flow   waiting for approval"]
    await flow.signal(run_id, store, "approval", "yes")
    await narrator.look()
    await _work(store, handler)

    [line] = await narrator.look()
    assert "got approval" in line
    assert "sleep until 20" in line


async def test_a_step_named_like_a_wait_is_told_as_a_step(store, narrator):
    """The finding: of a step called `result` nothing was told, and `sleep:late` had slept."""
    names = ["result", "wait_for", "sleep:late", "emitted"]

    async def handler(ctx, params):
        for name in names:
            await ctx.step(name, lambda: 1)

    run_id = await flow.trigger(None).execute(store)
    await narrator.look()
    await _work(store, handler)

    told = "   ".join(f"{name} ok" for name in names)
    assert await narrator.look() == [f"run {run_id}  flow   {told}   done"]


async def test_a_repeated_wait_is_told_as_the_first_one(store, narrator, clock):
    """The finding: the second sleep was told as `sleep#2 ok`."""

    async def handler(ctx, params):
        await ctx.sleep(1)
        await ctx.sleep(1)
        await ctx.emit("shipped")
        await ctx.sleep(1)
        await ctx.emit("shipped")

    await flow.trigger(None).execute(store)
    lines = []
    for _ in range(4):
        await _work(store, handler)
        clock.advance(2)
        lines += await narrator.look()

    told = [re.sub("resumed.*database   ", "", line.partition("flow   ")[2]).split("   ") for line in lines]
    assert [parts[0] for parts in told[1:]] == ["slept", "slept", "slept"]
    assert told[2][1] == told[3][1] == "emitted shipped"


async def test_a_parked_run_is_told_with_the_command_that_explains_it(store, narrator, clock):
    async def old(ctx, params):
        await ctx.step("charge", lambda: 1)
        await ctx.sleep(60)

    async def new(ctx, params):
        await ctx.step("bill", lambda: 1)
        await ctx.sleep(60)

    run_id = await flow.trigger(None).execute(store)
    await _work(store, old)
    await narrator.look()
    clock.advance(60)
    await _work(store, new)

    [line] = await narrator.look()
    assert line.endswith(f"   PARKED: its code asks for other steps than are recorded; see pgqrs run why {run_id}")
    assert await narrator.look() == []


async def test_another_worker_replays_what_is_on_record(store, narrator, clock):
    async def handler(ctx, params):
        await ctx.step("one", lambda: 1)
        await ctx.step("two", lambda: 2)
        await ctx.sleep(10)
        return "end"

    run_id = await flow.trigger(None).execute(store)
    await _work(store, handler, name="first")
    await narrator.look()
    clock.advance(11)
    await _work(store, handler, name="second")

    [line] = await narrator.look()
    assert line.startswith(f"run {run_id}  flow   resumed by worker ")
    assert "2 steps replayed from the database" in line


@pytest.mark.backends("sqlite")
async def test_what_was_there_before_is_not_told(store, narrator):
    async def handler(ctx, params):
        await ctx.step("one", lambda: 1)
        await ctx.pause("sign it")

    await flow.trigger(None).execute(store)
    await _work(store, handler)

    late = RunFeed(store)
    await late.begin()

    assert await late.look() == []


@pytest.mark.backends("sqlite")
async def test_more_than_can_be_read_is_counted(store, narrator):
    await flow.trigger_many([None] * 400).execute(store)

    lines = await narrator.look()

    assert len(lines) == 51
    assert lines[-1] == "... and 350 more runs; `pgqrs run list` shows them"


@pytest.mark.backends("sqlite")
async def test_text_of_users_is_told_as_text(store, narrator):
    async def handler(ctx, params):
        raise pgqrs.PermanentError("\x1b[2J\nsecond line" + "x" * 500)

    await flow.trigger(None).execute(store)
    await _work(store, handler)

    [line] = await narrator.look()
    assert "\x1b" not in line
    assert "\n" not in line
    assert len(line) < 160


@pytest.mark.backends("sqlite")
async def test_a_restarted_run_is_followed_again(store, narrator):
    async def fails(ctx, params):
        await ctx.step("one", lambda: 1)
        raise pgqrs.PermanentError("no")

    run_id = await flow.trigger(None).execute(store)
    await _work(store, fails)
    await narrator.look()
    await flow.restart(run_id, store)

    seen = []

    async def held(ctx, params):
        await ctx.step("one", lambda: 1)
        seen.extend(await narrator.look())
        return "end"

    await _work(store, held, name="second")

    # It is found while it runs; what it had done before is not told again.
    assert seen == []
    assert await narrator.look() == [f'run {run_id}  flow   done: "end"']
