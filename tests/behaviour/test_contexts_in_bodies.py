"""The context in the body of a step: plain values, or a refusal; never a loop that waits for itself."""

import uuid
import warnings

import pytest

import pgqrs

# A loop that stands still runs no timer of asyncio's.
pytestmark = pytest.mark.timeout(60)


def answers(ctx):
    """What needs no recording of its own."""
    return [str(ctx.uuid()), ctx.random(), str(ctx.now())]


def is_plain(found):
    identifier, number, moment = found
    return bool(uuid.UUID(identifier)) and 0 <= number < 1 and moment.startswith("20")


# -- async bodies of plain handlers ---------------------------------------------------------------------------


async def test_an_async_step_of_a_plain_handler_gets_plain_values(run):
    def handler(ctx, params):
        async def body():
            ctx.progress(3, 10, "half way")
            ctx.emit("order.packed")
            return answers(ctx)

        return ctx.step("s", body)

    done = await run(handler)

    assert done.status == "SUCCESS"
    assert is_plain(done.output())
    assert done.progress["done"] == 3


@pytest.mark.parametrize(
    "verb",
    [
        lambda ctx: ctx.step("inner", lambda: 1),
        lambda ctx: ctx.sleep(1),
        lambda ctx: ctx.first(lambda: ctx.sleep(1)),
        lambda ctx: ctx.map("flow", [1]),
        lambda ctx: ctx.spawn("flow", 1),
        lambda ctx: ctx.gather(lambda: 1, lambda: 2),
    ],
    ids=["step", "sleep", "first", "map", "spawn", "gather"],
)
async def test_an_async_step_of_a_plain_handler_is_refused_what_would_wait(run, verb):
    def handler(ctx, params):
        async def body():
            return verb(ctx)

        return ctx.step("s", body)

    done = await run(handler)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert done.last_error.startswith("NotAllowedInStep: ")


async def test_a_transaction_of_a_plain_handler_gets_plain_values(run):
    def handler(ctx, params):
        async def work(tx):
            ctx.progress(3, 10, "half way")
            ctx.emit("order.packed")
            await tx.fetch("select 1")
            return answers(ctx)

        return ctx.transaction("t", work)

    done = await run(handler)

    assert done.status == "SUCCESS"
    assert is_plain(done.output())
    assert done.progress["done"] == 3


async def test_a_plain_handler_maps_over_a_generator_that_asks_for_steps(run, store):
    async def double(ctx, n: int):
        return n * 2

    await store.create_workflow("double")

    def handler(ctx, params):
        return ctx.map("double", (ctx.step("number", int, n) for n in range(3)))

    waiting = await run(handler)
    worker = await pgqrs.consumer("worker-2", 8081, "double").handler(double).create(store)
    await worker.run_until_idle()
    await worker.close()
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", [0, 2, 4])


# -- plain bodies of async handlers ---------------------------------------------------------------------------


async def test_a_plain_step_of_an_async_handler_gets_plain_values(run):
    async def handler(ctx, params):
        return await ctx.step("s", lambda: [*answers(ctx)])

    done = await run(handler)

    assert done.status == "SUCCESS"
    assert is_plain(done.output())


async def test_a_plain_step_of_an_async_handler_shows_its_progress_and_emits(run, store):
    published = []

    async def handler(ctx, params):
        def body():
            for n in range(3):
                ctx.progress(n + 1, 3)
            ctx.emit("order.packed", {"n": 3})
            return "packed"

        return await ctx.step("s", body)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = await run(handler)
    dispatcher = pgqrs.dispatcher(store).to(lambda event: published.append(event.type))
    await dispatcher.run_until_idle()

    assert (done.status, done.output()) == ("SUCCESS", "packed")
    assert (done.progress["done"], published) == (3, ["order.packed"])


@pytest.mark.parametrize("verb", [lambda ctx: ctx.map("flow", [1]), lambda ctx: ctx.step("inner", lambda: 1)])
async def test_a_plain_step_of_an_async_handler_is_refused_what_would_wait(run, verb):
    async def handler(ctx, params):
        def body():
            verb(ctx)

        return await ctx.step("s", body)

    done = await run(handler)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert done.last_error.startswith("NotAllowedInStep: ")
