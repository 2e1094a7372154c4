"""A step that fails with a group of errors: each pass of the handler gets the same group, however it is nested."""

import random

import pytest

import pgqrs


class Declined(Exception):
    def __init__(self, card: str, *, code: int = 0) -> None:
        super().__init__(f"{card} was declined")
        self.card = card
        self.code = code


class PaymentErrors(ExceptionGroup):
    """As the documentation of Python has it: `split` and `subgroup` keep the class."""

    def derive(self, excs):
        return PaymentErrors(self.message, excs)


class CodedErrors(ExceptionGroup):
    """With a constructor of its own."""

    def __new__(cls, excs, code):
        made = super().__new__(cls, f"code {code}", excs)
        made.code = code
        return made

    def derive(self, excs):
        return CodedErrors(excs, self.code)


def grown(chance: random.Random, depth: int) -> Exception:
    """A group of up to four, some of them groups."""
    members = [
        grown(chance, depth - 1) if depth and chance.random() < 0.4 else leaf(chance)
        for _ in range(chance.randint(1, 4))
    ]
    match chance.randrange(3):
        case 0:
            group = ExceptionGroup(f"several {chance.randrange(9)}", members)
        case 1:
            group = PaymentErrors("payments", members)
        case _:
            group = CodedErrors(members, chance.randrange(500))
    if chance.random() < 0.3:
        group.add_note("noted")
    return group


def leaf(chance: random.Random) -> Exception:
    return chance.choice(
        [
            ValueError("wrong", 5),
            OSError(2, "no such file", "a.txt"),
            KeyError("key"),
            Declined("visa", code=chance.randrange(9)),
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
            pgqrs.TransientError("later"),
            StopIteration(3),
            TypeError(),
        ]
    )


def shape(error: BaseException) -> object:
    """All that a handler can see of it."""
    members = [shape(each) for each in error.exceptions] if isinstance(error, BaseExceptionGroup) else None
    kept = {name: value for name, value in vars(error).items() if name != "__notes__"}
    return (
        type(error),
        str(error),
        repr(error.args) if members is None else None,
        kept,
        getattr(error, "__notes__", []),
        members,
    )


@pytest.mark.parametrize("seed", range(25))
async def test_a_generated_group_replays_as_it_was_raised(run, clock, seed):
    raised = grown(random.Random(seed), 3)
    passes = []

    async def fails():
        raise raised

    async def handler(ctx, params=None):
        try:
            await ctx.step("pay", fails, retry=pgqrs.RetryPolicy(max_attempts=1))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
            passes.append(shape(error))
        await ctx.sleep(60)
        return len(passes)

    waiting = await run(handler)
    clock.advance(120)
    done = await run(handler, run_id=waiting.run_id)

    assert done.status == "SUCCESS"
    assert passes == [shape(raised)] * 2


async def test_an_except_star_clause_takes_the_same_members_in_each_pass(run, clock):
    taken = []

    async def fails():
        raise PaymentErrors("two of them", [Declined("visa"), CodedErrors([OSError(5, "io"), Declined("amex")], 7)])

    async def handler(ctx, params=None):
        try:
            await ctx.step("pay", fails, retry=pgqrs.RetryPolicy(max_attempts=1))
        except* Declined as declined:
            taken.append((type(declined), [type(each) for each in declined.exceptions]))
        except* OSError as broken:
            taken.append((type(broken), [type(each) for each in broken.exceptions]))
        await ctx.sleep(60)

    waiting = await run(handler)
    clock.advance(120)
    await run(handler, run_id=waiting.run_id)

    assert taken[:2] == [(PaymentErrors, [Declined, CodedErrors]), (PaymentErrors, [CodedErrors])]
    assert taken[2:] == taken[:2]
