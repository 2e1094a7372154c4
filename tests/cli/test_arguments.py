"""What people type is bound to a workflow's parameters, and checked against them."""

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


async def test_a_run_is_shown_with_what_it_was_given(command, served):
    async def order(ctx, amount: int, currency: str = "EUR"): ...

    await served(order)
    triggered = await command("run", "trigger", "order", "amount:=5", "-o", "json")

    assert triggered.json["input"] == {"amount": 5}
