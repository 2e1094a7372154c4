"""What people type is bound to a workflow's parameters, and checked against them."""

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

import pgqrs


@pytest.fixture
def served(store):
    """Has a handler registered, and gives what runs are bound to."""

    async def serve(handler, *, before=()):
        await store.create_workflow("order")
        for words in before:
            assert (await words()).code == 0
        worker = await pgqrs.consumer("w", 0, "order").handler(handler).create(store)

        async def work():
            await worker.run_until_idle()
            await worker.close()

        return work

    return serve


async def test_the_tutorials_command_works_before_and_after_a_worker_has_started(command, served):
    got = []

    async def order(ctx, amount: int) -> str:
        got.append(amount)

    work = await served(order, before=[lambda: command("run", "trigger", "order", "amount:=5")])
    assert (await command("run", "trigger", "order", "amount:=6")).code == 0
    assert (await command("run", "trigger", "order", "7")).code == 0
    await work()

    assert got == [5, 6, 7]


async def test_names_are_those_of_parameters_though_nothing_tells_their_types(command, served):
    got = []

    async def order(ctx, amount):
        got.append(amount)

    work = await served(order, before=[lambda: command("run", "trigger", "order", "amount:=5")])
    assert (await command("run", "trigger", "order", "amount:=6")).code == 0
    await work()

    assert got == [5, 6]


async def test_names_are_the_fields_of_the_one_value_that_a_workflow_takes(command, served):
    got = []

    async def order(ctx, params):
        got.append(params)

    typed = ("run", "trigger", "order", "bucket=b", "count:=2")
    work = await served(order, before=[lambda: command(*typed)])
    assert (await command(*typed)).code == 0
    await work()

    assert got == [{"bucket": "b", "count": 2}] * 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["amount=lots"], "workflow 'order': 'amount' must be an int, got 'lots'"),
        (["amuont:=5"], "no parameter 'amuont'; it takes amount, currency; did you mean 'amount'?"),
        (["currency=EUR"], "'amount' is missing"),
        ([], "'amount' is missing"),
        (["[1]"], "'amount' must be an int, got [1]"),
    ],
    ids=str,
)
async def test_what_does_not_fit_is_told_with_the_name(store, command, served, words, told):
    async def order(ctx, amount: int, currency: str = "EUR"): ...

    await served(order)
    triggered = await command("run", "trigger", "order", *words)
    scheduled = await command("schedule", "create", "daily", "order", *words, "--cron", "@daily")

    assert (triggered.code, scheduled.code) == (2, 2)
    assert told in triggered.err
    assert told in scheduled.err
    assert await pgqrs.workflow("order").runs(store) == []


@pytest.mark.parametrize(
    ("kind", "word", "told", "right"),
    [
        (Decimal, "lots", "must be a Decimal such as '12.50', got 'lots'", "12.50"),
        (datetime, "tomorrow", "must be a datetime such as '2030-01-31T12:00:00Z', got 'tomorrow'", None),
        (date, "31.1.2030", "must be a date such as '2030-01-31', got '31.1.2030'", "2030-01-31"),
        (timedelta, "5m", "must be a timedelta such as 'PT90S', got '5m'", "PT90S"),
        (UUID, "7", "must be a UUID such as '6f1f7d5c-2f0b-4f6e-9a51-0a4e3f0c9b7d', got '7'", None),
        (Decimal | None, "lots", "must be a Decimal such as '12.50' or None, got 'lots'", "12.50"),
    ],
    ids=str,
)
async def test_a_text_that_stands_for_another_value_is_checked_with_the_name(
    store, command, served, kind, word, told, right
):
    got = []

    async def order(ctx, value, note: str = ""):
        got.append(value)

    order.__annotations__["value"] = kind
    work = await served(order)
    triggered = await command("run", "trigger", "order", f"value={word}")

    assert triggered.code == 2
    assert f"workflow 'order': 'value' {told}" in triggered.err
    assert await pgqrs.workflow("order").runs(store) == []

    # What the error shows is taken.
    shown = right or re.search(r"such as '(.*?)'", triggered.err)[1]
    assert (await command("run", "trigger", "order", f"value={shown}")).code == 0
    await work()
    assert isinstance(got[0], kind)


@pytest.mark.parametrize(
    ("kind", "word", "fix"),
    [(int, "value=1", "value:=1"), (list[int], "value=[1]", "value:='[1]'"), (bool, "value=true", "value:=true")],
)
async def test_a_text_where_a_number_is_wanted_shows_how_to_write_a_number(command, served, kind, word, fix):
    async def order(ctx, value, note: str = ""): ...

    order.__annotations__["value"] = kind
    work = await served(order)
    said = await command("run", "trigger", "order", word)
    right = await command("run", "trigger", "order", fix.replace("'", ""))
    await work()

    assert said.err.endswith(f"; write {fix}")
    assert (said.code, right.code) == (2, 0)


async def test_a_text_that_is_no_such_number_either_gets_no_wrong_advice(command, served):
    async def order(ctx, value: int): ...

    work = await served(order)
    said = [(await command("run", "trigger", "order", word)).err for word in ("value=lots", "value=1.5")]
    await work()

    assert ["must be an int" in each for each in said] == [True, True]
    assert [":=" in each for each in said] == [False, False]


async def test_a_run_is_shown_with_what_it_was_given(command, served):
    async def order(ctx, amount: int, currency: str = "EUR"): ...

    await served(order)
    triggered = await command("run", "trigger", "order", "amount:=5", "-o", "json")

    assert triggered.json["input"] == {"amount": 5}


async def test_a_name_that_is_no_parameter_is_named_though_the_workflow_takes_one_plain_value(command, served):
    async def order(ctx, a: int) -> int:
        return a

    work = await served(order)
    said = await command("run", "trigger", "order", "b:=5")
    await work()

    assert said.code != 0
    assert "there is no parameter 'b'; it takes a" in said.err


async def test_a_wrong_field_of_the_one_value_is_named_and_not_taken_for_a_parameter(command, served):
    async def order(ctx, what: Wanted) -> int:
        return what.amount

    work = await served(order)
    said = await command("run", "trigger", "order", "amount=lots")
    await work()

    assert said.code != 0
    assert "amount" in said.err
    assert "no parameter" not in said.err


@dataclass
class Wanted:
    amount: int
