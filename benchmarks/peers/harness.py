"""What every peer's script shares: its arguments, its one line of JSON, and the look into the database from outside.

It runs in the peers' environments, so it may import nothing but the standard library and psycopg.
"""

import argparse
import asyncio
import inspect
import json
import os
import random
import sqlite3
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

SCENARIOS = (
    "enqueue_one",
    "enqueue_many",
    "producers_100",
    "drain",
    "raw_batches",
    "runs_1",
    "runs_10",
    "fan_out",
    "latency",
)
# What is enqueued everywhere, as near as each peer's types allow.
PAYLOAD = {"n": 1, "name": "a task", "tags": ["a", "b"]}
BATCH, PRODUCERS, CHILDREN, SAMPLES = 1_000, 100, 1_000, 200
PLAIN_QUEUE = "a plain queue: it has no durable steps"
LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Task:
    """What the command line asked for."""

    dsn: str
    count: int
    seconds: float
    steps: int

    @property
    def is_sqlite(self) -> bool:
        return self.dsn.startswith("sqlite:")

    @property
    def path(self) -> str:
        """Of the SQLite file: sqlite:////absolute or sqlite:///relative."""
        return self.dsn.removeprefix("sqlite:///")


@dataclass(frozen=True, slots=True)
class Measured:
    """So many were durably done in so many seconds."""

    count: int
    seconds: float
    settings: str


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds from the call to the start of the handler, one for each sample."""

    samples: list[float]
    settings: str


class Unsupported(Exception):
    """The peer has nothing of that kind."""


Scenario = Callable[[Task], Measured | Latencies | Awaitable[Measured | Latencies]]


def main(peer: str, distribution: str, scenarios: dict[str, Scenario], unsupported: dict[str, str]) -> None:
    """Measure the scenario that the command line names and print it as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", required=True, choices=SCENARIOS)
    parser.add_argument("--dsn", required=True, help="of an empty database: postgresql://... or sqlite:////path")
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="the longest that the timed part may take")
    given = parser.parse_args()
    about = {"peer": peer, "version": version(distribution), "scenario": given.scenario}
    name = given.scenario
    task = Task(given.dsn, given.count, given.seconds, steps=10 if name == "runs_10" else 1)
    try:
        if name in unsupported:
            raise Unsupported(unsupported[name])
        outcome = scenarios[name](task)
        if inspect.iscoroutine(outcome):
            asyncio.run(reporting(outcome, about))
        report(outcome, about)
    except Unsupported as reason:
        print(json.dumps({**about, "unsupported": str(reason)}))
        leave(0)
    except Exception:  # noqa: BLE001 - whatever it was, the runner must see it and go on with the next
        fail()


async def reporting(outcome: Awaitable[Measured | Latencies], about: dict[str, Any]) -> None:
    # From within the loop: closing it would wait for workers, and some of them swallow their cancellation.
    report(await outcome, about)


def report(measured: Any, about: dict[str, Any]) -> None:
    print(json.dumps({**about, **described(measured)}))
    leave(0)


def fail() -> None:
    traceback.print_exc()
    leave(1)


def work(worker: Awaitable[Any]) -> asyncio.Task[Any]:
    """Run a worker beside; if it breaks, so does the measurement."""

    async def watched() -> None:
        try:
            await worker
        except Exception:  # noqa: BLE001 - as in main
            fail()

    return asyncio.create_task(watched())


def leave(code: int) -> None:
    """At once: workers that are still polling in other threads are not waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def described(measured: Measured | Latencies) -> dict[str, Any]:
    if isinstance(measured, Latencies):
        milliseconds = sorted(seconds * 1000 for seconds in measured.samples)
        if len(milliseconds) < 2:
            raise RuntimeError("no handler has started in time")
        return {
            "p50_ms": round(statistics.median(milliseconds), 3),
            "p99_ms": round(statistics.quantiles(milliseconds, n=100, method="inclusive")[98], 3),
            "samples": len(milliseconds),
            "settings": measured.settings,
        }
    return {
        "count": measured.count,
        "seconds": round(measured.seconds, 4),
        "rate": round(measured.count / measured.seconds, 1),
        "settings": measured.settings,
    }


# Producing


def one_by_one(task: Task, enqueue: Callable[[], Any], settings: str, *, worth: int = 1) -> Measured:
    """Calls of `enqueue` in a row, each of which is worth so many messages."""
    done, started = 0, time.perf_counter()
    while done < task.count and time.perf_counter() - started < task.seconds:
        enqueue()
        done += worth
    return Measured(done, time.perf_counter() - started, settings)


async def one_by_one_async(
    task: Task, enqueue: Callable[[], Awaitable[Any]], settings: str, *, worth: int = 1
) -> Measured:
    done, started = 0, time.perf_counter()
    while done < task.count and time.perf_counter() - started < task.seconds:
        await enqueue()
        done += worth
    return Measured(done, time.perf_counter() - started, settings)


async def by_producers(task: Task, enqueue: Callable[[], Awaitable[Any]], settings: str) -> Measured:
    """The same from 100 asyncio tasks at once, one message a call."""
    done, started = 0, time.perf_counter()

    async def producer(share: int) -> None:
        nonlocal done
        for _ in range(share):
            if time.perf_counter() - started > task.seconds:
                return
            await enqueue()
            done += 1

    await asyncio.gather(*(producer(share) for share in shares(task.count)))
    return Measured(done, time.perf_counter() - started, settings)


def by_threads(task: Task, enqueue: Callable[[], Any], settings: str) -> Measured:
    """The same from 100 threads, for peers without asyncio."""
    done, started = [0] * PRODUCERS, time.perf_counter()

    def producer(place: int, share: int) -> None:
        for _ in range(share):
            if time.perf_counter() - started > task.seconds:
                return
            enqueue()
            done[place] += 1

    threads = [
        threading.Thread(target=producer, args=(place, share)) for place, share in enumerate(shares(task.count))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Measured(sum(done), time.perf_counter() - started, settings)


def shares(count: int) -> list[int]:
    each, rest = divmod(count, PRODUCERS)
    return [each + (place < rest) for place in range(PRODUCERS)]


def batches(count: int) -> Iterator[int]:
    """1,000, 1,000, ... and the rest."""
    while count > 0:
        yield min(count, BATCH)
        count -= BATCH


# Looking


def watch(
    task: Task, query: str, settings: str, *, started: float, parents: int = 0, expected: int | None = None
) -> Measured:
    """Look until the database says that all are complete, or until the time is over; `query` counts what is.

    Parents must be complete too, and are not counted.
    """
    expected = task.count if expected is None else expected
    with looking(task) as look:
        while True:
            before = time.perf_counter()
            done = look(query)
            now = time.perf_counter()
            if done >= expected + parents:
                return Measured(expected, now - started, settings)
            if now - started > task.seconds:
                return Measured(min(done, expected), now - started, f"{settings}; not complete, stopped by --seconds")
            # Counting many rows costs the peer's database: never more than a tenth of the time.
            time.sleep(max(LOOK_EVERY, 10 * (now - before)))


async def watch_async(task: Task, query: str, settings: str, *, started: float) -> Measured:
    """The same from a thread, beside a worker that runs in this loop."""
    return await asyncio.to_thread(watch, task, query, settings, started=started)


@contextmanager
def looking(task: Task) -> Iterator[Callable[[str], int]]:
    """A second connection, which the peer knows nothing of."""
    if task.is_sqlite:
        lite = sqlite3.connect(f"file:{task.path}?mode=ro", uri=True, timeout=30, check_same_thread=False)
        yield lambda query: int(lite.execute(query).fetchone()[0])
        lite.close()
        return
    import psycopg  # noqa: PLC0415 - not in the environment of a peer that is for SQLite only

    with psycopg.connect(task.dsn, autocommit=True) as connection:
        yield lambda query: int(connection.execute(query).fetchone()[0])  # type: ignore[index, arg-type]


# Latency


class Stopwatch:
    """From the call of enqueue to the start of the handler, whichever threads the two are in."""

    def __init__(self) -> None:
        self._started = 0.0
        self._seen = threading.Event()
        self._wake: Callable[[], Any] = self._seen.set

    def start_of_handler(self) -> None:
        """The first thing that the handler does."""
        self._started = time.perf_counter()
        self._wake()

    def measure(self, task: Task, enqueue: Callable[[], Any], settings: str, *, polled: float = 0.0) -> Latencies:
        """`polled`: how often the peer looks, where it is not told."""
        samples: list[float] = []
        end = time.perf_counter() + task.seconds
        while len(samples) < SAMPLES and (left := end - time.perf_counter()) > 0:
            self._seen.clear()
            called = time.perf_counter()
            enqueue()
            if not self._seen.wait(left):
                break
            samples.append(self._started - called)
            time.sleep(pause(polled))
        return Latencies(samples, settings)

    async def measure_async(
        self, task: Task, enqueue: Callable[[], Awaitable[Any]], settings: str, *, polled: float = 0.0
    ) -> Latencies:
        """The same for a worker in this loop, which waiting must not hold."""
        loop, seen = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(seen.set)
        samples: list[float] = []
        end = time.perf_counter() + task.seconds
        while len(samples) < SAMPLES and (left := end - time.perf_counter()) > 0:
            seen.clear()
            called = time.perf_counter()
            await enqueue()
            try:
                await asyncio.wait_for(seen.wait(), left)
            except TimeoutError:
                break
            samples.append(self._started - called)
            await asyncio.sleep(pause(polled))
        return Latencies(samples, settings)


def pause(polled: float) -> float:
    """10 to 30 ms; for a peer that polls, up to one interval more.

    The handler's start is just after a poll: called soon after, every enqueue would wait for a whole interval.
    """
    return random.uniform(0.01, 0.03) + random.uniform(0.0, polled)
