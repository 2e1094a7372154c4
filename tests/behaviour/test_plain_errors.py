"""A plain handler waits for its verbs in a thread: their errors come back as they are, and signals as no Exception.

The futures between threads and the event loop do neither. They make a new TimeoutError of a TimeoutError, an asyncio
cancellation of a CancelledError of `concurrent.futures`, and the other way round.
"""

import asyncio
import concurrent.futures

import pytest

import pgqrs
from pgqrs import faults

pytestmark = pytest.mark.filterwarnings("default")


def with_all(error):
    error.code = 7
    error.add_note("a note")
    error.__cause__ = KeyError("the cause")
    return error


ERRORS = [
    TimeoutError("slow"),
    concurrent.futures.CancelledError("the pool was shut down"),
    concurrent.futures.InvalidStateError("no state"),
    asyncio.InvalidStateError("no state"),
    ValueError("bad"),
]
NAMES = [f"{type(error).__module__}.{type(error).__name__}" for error in ERRORS]


def shown(error):
    return type(error), error.args, error.code, error.__notes__, type(error.__cause__), error.__cause__.args


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("given", ERRORS, ids=NAMES)
async def test_a_plain_handler_catches_what_its_step_raised(run, clock, given, kind):
    bodies, seen = [], []

    def fails():
        bodies.append(1)
        raise with_all(type(given)(*given.args))

    async def fails_later():
        fails()

    def handler(ctx, params):
        try:
            ctx.step("work", fails if kind == "plain" else fails_later)
        except Exception as error:  # noqa: BLE001 - whatever it is
            seen.append(shown(error))
        ctx.sleep(60)
        return "done"

    waiting = await run(handler)
    clock.advance(61)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.output(), len(bodies)) == ("done", 1)
    assert seen == [shown(with_all(type(given)(*given.args)))] * 2


@pytest.mark.parametrize("given", ERRORS, ids=NAMES)
async def test_a_step_whose_error_leaves_a_plain_handler_runs_again(run, clock, given):
    bodies = []

    def fails_once():
        bodies.append(1)
        if len(bodies) == 1:
            raise given
        return "done"

    def handler(ctx, params):
        return ctx.step("work", fails_once)

    tried = await run(handler)
    clock.advance(10)
    done = await run(handler, run_id=tried.run_id)

    assert (done.output(), len(bodies)) == ("done", 2)


@pytest.mark.parametrize("verb", ["gather", "step", "sleep"])
async def test_a_plain_handler_on_its_way_out_sees_no_error(run, clock, verb):
    begun, seen = [], []

    def lose():
        raise pgqrs.LeaseLost("run 1 was leased again")

    def handler(ctx, params):
        verbs = {
            "gather": lambda: ctx.gather(lambda: ctx.step("clean", lambda: 1)),
            "step": lambda: ctx.step("clean", lambda: 1),
            "sleep": lambda: ctx.sleep(1),
        }
        begun.append(1)
        try:
            try:
                if len(begun) == 1:
                    with faults.injected(faults.at("before", "settlement.commit", lose)):
                        ctx.step("work", lambda: 1)
            finally:
                verbs[verb]()
        except Exception as error:  # noqa: BLE001 - none is expected
            seen.append(error)
        return "done"

    done = await run(handler)
    for _ in range(3):
        clock.advance(40)
        done = await run(handler, run_id=done.run_id)

    assert (done.output(), seen) == ("done", [])
