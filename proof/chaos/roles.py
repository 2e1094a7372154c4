"""What the processes of the crew do: execute runs and handle messages, publish events, trigger and enqueue."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import pgqrs
from pgqrs import faults
from proof.chaos.ledger import Ledger
from proof.chaos.work import FORETOLD, QUEUE, handlers, handling, publishing

T = TypeVar("T")
log = logging.getLogger("proof.chaos")

AGAIN_SECONDS = 0.2
# Each waits for its run's result before it triggers the next: the backlog stays small whatever is broken.
TASKS = 24
ENQUEUERS = 6
ENQUEUE_EVERY_SECONDS = 0.1
WRITES = frozenset(
    {"settlement.commit", "claims.transact", "claims.spawn", "claims.take_signal", "messages.settle_and_lease"}
)
# Who has nothing to write for so long does not stop at all: nobody would wake it.
FREEZE_WITHIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Post:
    """A place in the crew: what is done there, and how the database is reached from there."""

    role: str
    config: pgqrs.Config
    concurrency: int = 8
    grace_seconds: float = 2.0


async def work(post: Post, ledger: Ledger) -> None:
    """Runs and messages, until SIGTERM."""
    async with _connected(post.config) as store:
        name = f"chaos-{random.getrandbits(32):x}"
        builder = pgqrs.worker(name, concurrency=post.concurrency).workflows(handlers(ledger))
        worker = await insisted(lambda: builder.grace(post.grace_seconds).create(store))
        consumer = await insisted(lambda: store.consumer(QUEUE))
        ledger.note("ready", "work")
        processing = asyncio.create_task(
            consumer.process(handling(ledger), concurrency=4, grace_seconds=post.grace_seconds)
        )
        polling = asyncio.create_task(worker.poll_forever(signals=True))
        with faults.injected(_freezing_when_told()):
            await asyncio.wait({processing, polling}, return_when=asyncio.FIRST_COMPLETED)
        worker.stop()
        with suppress(pgqrs.ConnectionFailed):
            await consumer.close()
        await polling
        with suppress(pgqrs.ConnectionFailed):
            await processing


def _freezing_when_told() -> faults.Action:
    """After SIGUSR1 the process stops itself just before its next write: its lease was looked at, and will be over.

    A SIGSTOP from outside hits that moment too seldom. Whoever sent the signal sends SIGCONT.
    """
    told_at = -math.inf

    def told() -> None:
        nonlocal told_at
        told_at = time.monotonic()

    def reached(point: faults.Point) -> None:
        nonlocal told_at
        if point.phase == "before" and point.name in WRITES and time.monotonic() - told_at < FREEZE_WITHIN_SECONDS:
            told_at = -math.inf
            os.kill(os.getpid(), signal.SIGSTOP)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, told)
    return reached


async def dispatch(post: Post, ledger: Ledger) -> None:
    """Events, until SIGTERM."""
    async with _connected(post.config) as store:
        dispatcher = pgqrs.dispatcher(store).to(publishing(ledger)).deadline(1).max_attempts(10_000)
        ledger.note("ready", "dispatch")
        await dispatcher.concurrency(post.concurrency).run_forever(signals=True)


async def produce(post: Post, ledger: Ledger) -> None:
    """Runs of every kind and messages, each noted once it is acknowledged; until SIGTERM."""
    async with _connected(post.config) as store, _until_told() as told:
        producer = await insisted(lambda: store.producer(QUEUE))
        numbers = count(1)
        name = f"{random.getrandbits(48):x}"

        async def go_on() -> None:
            while not told.is_set():
                n = next(numbers)
                await _run_through(store, ledger, kind=random.choice(list(FORETOLD)), key=f"{name}-{n}", n=n)

        async def enqueue() -> None:
            while not told.is_set():
                payload = f"{name}-{next(numbers)}"
                with suppress(pgqrs.ConnectionFailed):
                    # Refused or in doubt: it may be there or not, and is not noted.
                    ledger.note("enqueued", await producer.enqueue(payload), payload)
                await asyncio.sleep(random.expovariate(1 / ENQUEUE_EVERY_SECONDS))

        tasks = [asyncio.create_task(each()) for each in (*[go_on] * TASKS, *[enqueue] * ENQUEUERS)]
        ledger.note("ready", "produce")
        stopping = asyncio.create_task(told.wait())
        await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run_through(store: pgqrs.Store, ledger: Ledger, *, kind: str, key: str, n: int) -> None:
    flow = pgqrs.workflow(kind)
    run_id = await insisted(lambda: flow.trigger(n, idempotency_key=key).execute(store))
    ledger.note("acked", run_id, kind, n)
    if kind == "asks":
        await _signalled(store, run_id, kind, 10 * n)
    run = await insisted(lambda: flow.get_run(run_id, store))
    # Without a timeout: whoever waits is told to end, or the run ends.
    ledger.note("result", run_id, await insisted(run.result))


async def _signalled(store: pgqrs.Store, run_id: int, kind: str, payload: int) -> None:
    """One that is in doubt is sent again: it is never read, or the run has ended by the first."""
    tried = 0

    async def send() -> None:
        nonlocal tried
        tried += 1
        await pgqrs.workflow(kind).signal(run_id, store, "go", payload)

    try:
        await insisted(send)
    except pgqrs.InvalidTransition:
        if tried == 1:
            raise


async def load(post: Post, ledger: Ledger) -> None:
    """Triggers as fast as they are acknowledged, until SIGTERM."""
    async with _connected(post.config) as store, _until_told() as told:
        flow = pgqrs.workflow("plain")
        name = f"{random.getrandbits(48):x}"
        numbers = count(1)

        async def go_on() -> None:
            while not told.is_set():
                n = next(numbers)
                run_id = await insisted(
                    lambda: flow.trigger(n, idempotency_key=f"{name}-{n}").execute(store)  # noqa: B023 - awaited at once
                )
                ledger.note("acked", run_id, "plain", n)
                await asyncio.sleep(0.05)

        ledger.note("ready", "load")
        await asyncio.gather(*(go_on() for _ in range(post.concurrency)))


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    "work": work,
    "dispatch": dispatch,
    "produce": produce,
    "load": load,
}


async def insisted(call: Callable[[], Awaitable[T]]) -> T:
    """Again and again while the database is away, as any program of a user's would."""
    while True:
        try:
            return await call()
        except pgqrs.ConnectionFailed as error:
            log.warning("again: %s", error)
            await asyncio.sleep(AGAIN_SECONDS)


@asynccontextmanager
async def _connected(config: pgqrs.Config) -> AsyncIterator[pgqrs.Store]:
    store = await insisted(lambda: _connect(config))
    try:
        yield store
    finally:
        await store.close()


async def _connect(config: pgqrs.Config) -> Any:
    return await pgqrs.connect_with(config)


@asynccontextmanager
async def _until_told() -> AsyncIterator[asyncio.Event]:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    yield told
    loop.remove_signal_handler(signal.SIGTERM)
