"""What a handler catches in its first pass it catches in every other: the recorded error, and nothing else of it."""

import pytest


class Refused(Exception):
    """Holds what no record can: the answer of the shop, as an object."""

    def __init__(self, reason):
        super().__init__(reason)
        self.answer = object()


def seen(error):
    try:
        answer = f"{error.answer:s}"
    except Exception as missing:  # noqa: BLE001 - what it raises is what is compared
        answer = type(missing).__name__
    return type(error).__name__, str(error), type(error.answer).__name__, answer


async def test_what_cannot_be_recorded_of_an_error_is_missing_in_the_first_pass_too(run, clock):
    passes, raised = [], []

    def refuse():
        raised.append(Refused("out of stock"))
        raise raised[-1]

    async def handler(ctx, params):
        try:
            await ctx.step("ship", refuse)
        except Refused as error:
            passes.append((seen(error), error in raised))
            await ctx.sleep(60)

    waiting = await run(handler)
    clock.advance(60)
    ended = await run(handler, run_id=waiting.run_id)

    assert ended.status == "SUCCESS"
    assert passes[0] == passes[1]
    assert passes[0][1] is False


@pytest.mark.parametrize("error", [OSError(19, "no printer"), Refused("out of stock")])
async def test_the_error_of_a_transaction_is_caught_again_and_its_function_called_once(run, clock, error):
    calls, passes = [], []

    async def fails(tx):
        calls.append(1)
        raise error

    async def handler(ctx, params):
        try:
            await ctx.transaction("print", fails)
        except type(error) as caught:
            passes.append((str(caught), caught is error))
            await ctx.sleep(60)

    waiting = await run(handler)
    clock.advance(60)
    ended = await run(handler, run_id=waiting.run_id)

    assert ended.status == "SUCCESS"
    assert passes == [(str(error), False)] * 2
    assert calls == [1]
