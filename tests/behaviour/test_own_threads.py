"""Threads that a plain handler starts by itself: their steps have names, and no order."""

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor

import pytest


def in_a_pool(function, items):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(function, items))


def in_a_pool_with_the_context(function, items):
    with ThreadPoolExecutor(4) as pool:
        return [each.result() for each in [pool.submit(contextvars.copy_context().run, function, i) for i in items]]


def in_threads_of_asyncio(function, items):
    async def main():
        return await asyncio.gather(*(asyncio.to_thread(function, item) for item in items))

    return asyncio.run(main())


WAYS = pytest.mark.parametrize("way", [in_a_pool, in_a_pool_with_the_context, in_threads_of_asyncio])


@WAYS
async def test_a_name_that_several_threads_use_is_refused(run, way):
    bodies = []

    def handler(ctx, params):
        return way(lambda n: ctx.step("fetch", lambda: bodies.append(n) or n), range(4))

    done = await run(handler)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert "give each step a name of its own, or use ctx.gather" in done.last_error
    assert len(bodies) <= 1


@WAYS
async def test_threads_with_names_of_their_own_get_their_own_results_in_every_pass(run, clock, way):
    bodies = []

    def handler(ctx, params):
        found = way(lambda n: ctx.step(f"fetch {n}", lambda: bodies.append(n) or n), range(4))
        ctx.sleep(60)
        return found

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", [0, 1, 2, 3])
    assert sorted(bodies) == [0, 1, 2, 3]


async def test_a_handler_that_swallows_the_refusal_ends_all_the_same(run):
    def handler(ctx, params):
        def fetch(_n):
            try:
                return ctx.step("fetch", lambda: 1)
            except Exception:  # noqa: BLE001 - that is the mistake
                return None

        return in_a_pool(fetch, range(4))

    done = await run(handler)

    assert done.status == "ERROR"


async def test_gather_in_a_thread_of_the_handlers_own_is_refused(run):
    def handler(ctx, params):
        return in_a_pool(lambda _n: ctx.gather(lambda: 1), range(1))

    done = await run(handler)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert "threads come in no order" in done.last_error


async def test_a_refund_in_a_thread_that_an_except_block_waits_for_is_a_compensation(run):
    times = []

    def ship():
        times.append(1)
        if len(times) == 1:
            raise ValueError("the first time")

    def handler(ctx, params):
        try:
            ctx.step("ship", ship)
        except ValueError:
            in_a_pool(lambda _n: ctx.step("refund", lambda: 1), range(1))
            raise

    done = await run(handler, max_attempts=2)

    assert (done.status, len(times)) == ("ERROR", 1)


async def test_parts_of_ctx_gather_may_use_one_name(run, clock):
    def handler(ctx, params):
        found = ctx.gather(*(lambda n=n: ctx.step("fetch", lambda: n) for n in range(4)))
        ctx.sleep(60)
        return found

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert (done.status, done.output()) == ("SUCCESS", [0, 1, 2, 3])
