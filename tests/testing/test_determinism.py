"""`assert_deterministic` names what a workflow asks for differently; `replay` holds present code against golden histories."""

import asyncio
import json
import random
import time

import pytest

import pgqrs as library
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

    with pytest.raises(library.NonDeterminism, match="asks for step 'bill' where 'charge' is on record"):
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

    assert (exported["workflow"], exported["input"], exported["status"]) == ("purchase", "A1", "PENDING")
