"""A process with a worker and a dispatcher hears SIGTERM in both of them, and has its own handlers back afterwards."""

import asyncio
import os
import signal

import pytest

import pgqrs
from pgqrs.process_signals import STOP

SIGNALS = [signal.Signals[name] for name in STOP]


def told_to_stop():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
async def shop(live_store):
    """A worker, a dispatcher, and what is set when both have been at work."""
    await live_store.create_workflow("ship")
    published = asyncio.Event()

    async def ship(ctx, order: str):
        await ctx.emit("order.shipped", order)

    async def publish(event):
        published.set()

    worker = await pgqrs.consumer("w", 0, "ship").handler(ship).create(live_store)
    dispatcher = pgqrs.dispatcher(live_store).to(publish)
    await pgqrs.workflow("ship").trigger("A 7").execute(live_store)
    return worker, dispatcher, published


async def ended(*tasks):
    """Those that end by themselves; the others are cancelled, so that a red test leaves nothing behind."""
    done, waiting = await asyncio.wait(tasks, timeout=20)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(done)


@pytest.mark.parametrize("worker_first", [True, False])
async def test_sigterm_stops_the_worker_and_the_dispatcher_of_one_process(shop, worker_first):
    worker, dispatcher, published = shop
    serving = [worker.poll_forever(signals=True), dispatcher.run_forever(signals=True)]
    tasks = [asyncio.create_task(each) for each in (serving if worker_first else reversed(serving))]
    await asyncio.wait_for(published.wait(), 20)

    told_to_stop()

    assert await ended(*tasks) == 2


async def test_a_dispatcher_that_has_ended_leaves_the_signals_to_the_worker(shop):
    worker, dispatcher, published = shop
    polling = asyncio.create_task(worker.poll_forever(signals=True))
    dispatching = asyncio.create_task(dispatcher.run_forever(signals=True))
    await asyncio.wait_for(published.wait(), 20)
    dispatcher.stop()
    await asyncio.wait_for(dispatching, 20)

    told_to_stop()

    assert await ended(polling) == 1


async def test_a_dispatcher_that_is_told_to_stop_before_it_has_begun_ends(shop, live_store):
    class StopsTheProcess:
        def attach(self, db):
            told_to_stop()

        async def publish(self, event):
            pass

    worker, _, _ = shop
    dispatcher = pgqrs.dispatcher(live_store).to(StopsTheProcess())

    polling = asyncio.create_task(worker.poll_forever(signals=True))
    dispatching = asyncio.create_task(dispatcher.run_forever(signals=True))

    assert await ended(polling, dispatching) == 2


async def test_the_handlers_that_a_process_had_are_back_when_the_last_has_ended(shop):
    worker, dispatcher, published = shop
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    before = {each: signal.signal(each, lambda number, frame: None) for each in SIGNALS}
    own = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        loop.add_signal_handler(signal.SIGHUP, heard.set)
        tasks = [
            asyncio.create_task(each)
            for each in (worker.poll_forever(signals=True), dispatcher.run_forever(signals=True))
        ]
        await asyncio.wait_for(published.wait(), 20)
        os.kill(os.getpid(), signal.SIGHUP)
        assert await ended(*tasks) == 2
        assert not heard.is_set()

        found = {each: signal.getsignal(each) for each in SIGNALS}
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(heard.wait(), 20)

        assert (found[signal.SIGTERM], found[signal.SIGINT]) == (own[signal.SIGTERM], own[signal.SIGINT])
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for each, handler in before.items():
            signal.signal(each, handler)
