"""`assert_deterministic` names what a workflow asks for differently; `replay` holds present code against golden histories."""

import asyncio
import json
import random
import time

import pytest

import pgqrs as library
from pgqrs.lint import lint_source
from pgqrs.testing import assert_deterministic, replay
from testing.orders import approve, basket, order, purchase


def test_workflows_that_keep_to_their_steps_are_deterministic():
    assert_deterministic(order, "A1", drive=approve)
    assert_deterministic(purchase, "A1")
    assert_deterministic(basket, ["A1", "A2"])


def test_sleeps_branches_and_recorded_errors_are_deterministic():
    def fails() -> None:
        raise ValueError("no")

    async def many(ctx) -> list:
        await ctx.sleep(60)
        both = await asyncio.gather(ctx.step("a", lambda: 1), ctx.step("b", lambda: 2))
        try:
            await ctx.step("fails", fails)
        except ValueError as error:
            return [*both, str(error), str(await ctx.now())]

    assert_deterministic(many)


def test_a_value_made_outside_of_a_step_is_named_with_its_line():
    async def dice(ctx) -> int:
        thrown = random.random()
        return await ctx.step("note", lambda number: 1, thrown)

    with pytest.raises(
        AssertionError, match=r"(?s)calls step 'note' with.*likely because of 'random.random'.*ctx.random"
    ):
        assert_deterministic(dice)


def test_another_step_in_another_pass_is_named_with_what_was_there():
    passes = []

    async def changing(ctx) -> None:
        passes.append(1)
        await ctx.step("first", lambda: None)
        await ctx.step("odd" if len(passes) % 2 else "even", lambda: None)

    with pytest.raises(AssertionError, match="asks for step 'even', where the first run asked for 'odd'"):
        assert_deterministic(changing)


def test_a_result_that_holds_the_time_of_day_is_not_the_same_twice():
    async def stamped(ctx) -> float:
        await ctx.step("work", lambda: None)
        return time.time()

    with pytest.raises(AssertionError, match=r"(?s)a replay of all its steps gives.*time\.time"):
        assert_deterministic(stamped)


async def write(_tx) -> int:
    return 1


BEFORE = {
    "progress": lambda ctx: ctx.progress(1, 2),
    "transaction": lambda ctx: ctx.transaction("write", write),
}


@pytest.mark.parametrize("verb", BEFORE)
def test_what_comes_after_progress_or_a_transaction_is_looked_at_too(verb):
    async def dice(ctx) -> int:
        await BEFORE[verb](ctx)
        return await ctx.step("note", lambda number: 1, random.random())

    async def sound(ctx) -> int:
        await BEFORE[verb](ctx)
        return await ctx.step("note", lambda number: 1, await ctx.random())

    assert_deterministic(sound)
    with pytest.raises(AssertionError, match="calls step 'note' with"):
        assert_deterministic(dice)


@pytest.mark.parametrize("verb", BEFORE)
@pytest.mark.parametrize("has_ended", [True, False])
def test_replay_looks_behind_progress_and_transactions(pgqrs, verb, has_ended):
    async def written(ctx) -> int:
        await BEFORE[verb](ctx)
        done = await ctx.step("work", lambda: 1)
        if not has_ended:
            await ctx.wait_for("go")
        return done

    async def renamed(ctx) -> int:
        await BEFORE[verb](ctx)
        return await ctx.step("other", lambda: 1)

    async def shorter(ctx) -> int:
        await BEFORE[verb](ctx)
        await ctx.wait_for("go")

    run = pgqrs.trigger(written)
    pgqrs.drain()
    history = pgqrs.export(run)

    assert replay(history, written) == (1 if has_ended else None)
    with pytest.raises(library.NonDeterminism, match="asks for step 'other' where 'work' is recorded"):
        replay(history, renamed)
    with pytest.raises(library.NonDeterminism, match="asks for step 'wait_for:go' where 'work' is recorded"):
        replay(history, shorter)


def test_a_step_that_a_branch_no_longer_asks_for_is_missed(pgqrs):
    async def both(ctx, *steps) -> list:
        async def branch(*names):
            return [await ctx.step(name, lambda: 1) for name in names]

        return await asyncio.gather(branch("a"), branch(*steps))

    async def written(ctx) -> list:
        return await both(ctx, "b", "c")

    async def shorter(ctx) -> list:
        first, _ = await both(ctx, "b")
        return [first, [1, 1]]

    async def empty(ctx) -> list:
        first, _ = await both(ctx)
        return [first, [1, 1]]

    run = pgqrs.trigger(written)
    pgqrs.drain()
    history = pgqrs.export(run)

    assert replay(history, written) == [[1], [1, 1]]
    with pytest.raises(library.NonDeterminism, match="without step 'c@2'"):
        replay(history, shorter)
    with pytest.raises(library.NonDeterminism, match="without step 'b@2'"):
        replay(history, empty)


def test_steps_of_a_task_that_the_handler_leaves_behind_are_not_missed(pgqrs):
    async def leaves(ctx) -> int:
        task = asyncio.create_task(ctx.step("behind", lambda: 1))
        done = await ctx.step("ahead", lambda: 1)
        del task
        return done

    run = pgqrs.trigger(leaves)
    pgqrs.drain()

    assert replay(pgqrs.export(run), leaves) == 1
    assert_deterministic(leaves)


def test_a_run_that_is_parked_without_a_crash_is_not_deterministic():
    passes = []

    async def parked(ctx) -> None:
        passes.append(1)
        await ctx.step(f"work-{len(passes)}", lambda: None)
        await ctx.sleep(60)

    with pytest.raises(AssertionError, match=r"is not deterministic: .*asks for step 'work-2' where 'work-1'"):
        assert_deterministic(parked)


DRIFTING = """
import pgqrs

passes = 0


@pgqrs.workflow
async def drifting(ctx):
    global passes
    passes += 1
    await ctx.step("odd" if passes % 2 else "even", lambda: 1)
    await ctx.sleep(60)
"""


def test_a_parked_run_names_both_causes_and_instruments_that_find_the_one_in_unchanged_code(pgqrs):
    names = {"__name__": "drifting"}
    exec(DRIFTING, names)
    run = pgqrs.trigger(names["drifting"])
    pgqrs.drain(skip_time=True)

    assert run.is_parked
    assert "its code has changed since, or does not do the same in every pass" in run.waiting_for
    assert "`pgqrs lint` or pgqrs.testing.assert_deterministic" in run.waiting_for
    assert {finding.code for finding in lint_source(DRIFTING)} == {"PGQ109"}
    with pytest.raises(AssertionError, match="is not deterministic"):
        assert_deterministic(names["drifting"])


@pytest.fixture
def history(pgqrs):
    """The exported run of an order, through JSON as a file would hold it."""
    run = pgqrs.trigger(order, "A1")
    approve(pgqrs, run)
    return json.loads(json.dumps(pgqrs.export(run)))


def test_the_code_that_wrote_a_history_replays_it(history, tmp_path):
    file = tmp_path / "golden.json"
    file.write_text(json.dumps(history))

    assert replay(history, order) == replay(file, order) == {
        "paid": "A1 is paid for", "sent": "A1 is on its way", "by": "ann",
    }  # fmt: skip
    assert [signal["name"] for signal in history["signals"]] == ["approve"]


def test_code_that_asks_for_other_steps_is_refused(history):
    async def renamed(ctx, sku: str) -> dict:
        return {"paid": await ctx.step("bill", lambda: sku)}

    async def longer(ctx, sku: str) -> dict:
        done = await order.handler.function(ctx, sku)
        await ctx.step("thank", lambda: None)
        return done

    async def shorter(ctx, sku: str) -> str:
        return await ctx.step("charge", lambda: sku)

    with pytest.raises(library.NonDeterminism, match="asks for step 'bill' where 'charge' is recorded"):
        replay(history, renamed)
    with pytest.raises(library.NonDeterminism, match="asks for step 'thank', which is not on its record"):
        replay(history, longer)
    with pytest.raises(library.NonDeterminism, match="ended without step"):
        replay(history, shorter)


def test_code_that_gives_another_result_is_refused(history):
    async def other(ctx, sku: str) -> str:
        await order.handler.function(ctx, sku)
        return "something else"

    with pytest.raises(AssertionError, match="the present code gives '\"something else\"'"):
        replay(history, other)


def test_of_a_run_that_waits_the_code_must_get_as_far_as_the_record(pgqrs):
    run = pgqrs.trigger(order, "A1")
    pgqrs.drain()
    history = pgqrs.export(run)

    async def other(ctx, sku: str) -> None:
        await ctx.step("bill", lambda: sku)

    assert replay(history, order) is None
    with pytest.raises(library.NonDeterminism):
        replay(history, other)


async def test_any_run_exports_itself(store):
    await store.create_workflow("purchase")
    run = await purchase.get_run(await purchase.trigger("A1").execute(store), store)

    exported = await run.export()

    assert (exported["workflow"], exported["status"]) == ("purchase", "PENDING")
    assert exported["input"] == {"$args": "value", "sku": "A1"}
