"""What open dashboards cost those who work: draining with twenty of them open, and with none, in turns.

`make bench WHAT=dashboards`. `pgqrs serve` in a process of its own, and the readers in another: each holds a stream
open and fetches its page again when a hint tells it to, as often as the page's own script does. All of it shares this
machine's cores with the worker; readers elsewhere would cost it less.
"""

import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pgqrs
from benchmarks.databases import server

DASHBOARDS, ROUNDS = 20, int(os.environ.get("ROUNDS") or "4")
MESSAGES, RUNS, CONCURRENCY = 200_000, 40_000, 500
AIM = 0.95
# What twenty people look at, and for how long the script of a page waits at least between two fetches.
PAGES = ("/", "/", "/runs", "/queues", "/workflows")
# Of the server, to its readers.
TOKEN = "PGQRS_BENCH_TOKEN"
PAUSE_SECONDS = 0.4


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pgqrs-bench-") as folder:
        async with server() as dsn:
            for name, place in (("postgres", dsn), ("sqlite", f"sqlite:///{Path(folder) / 'bench.db'}")):
                if name in (os.environ.get("ON") or name):
                    await measure(name, place)


async def measure(name: str, dsn: str) -> None:
    rates: dict[tuple[str, int], list[float]] = {}
    async with pgqrs.connect(dsn, install=True) as store:
        await store.create_queue("mail")
        await store.create_workflow("flow")
        # The first round warms up, and is not counted.
        for number in range(ROUNDS + 1):
            for many in (0, DASHBOARDS) if number % 2 else (DASHBOARDS, 0):
                for what, drain in (("messages", messages), ("runs", runs)):
                    async with dashboards(dsn, many) as fetched:
                        rate = await drain(store)
                    if number:
                        rates.setdefault((what, many), []).append(rate)
                    print(f"  {what} {many} dashboards: {rate:,.0f}/s, {await fetched} pages fetched", flush=True)
    for what in ("messages", "runs"):
        without, beside = (statistics.median(rates[what, many]) for many in (0, DASHBOARDS))
        ratio = beside / without
        mark = "" if ratio >= AIM else f"  <-- below {AIM}"
        print(f"{name:<9} {what:<9} {without:,.0f}/s alone, {beside:,.0f}/s with {DASHBOARDS}: {ratio:.3f}{mark}")


async def messages(store: pgqrs.Store) -> float:
    producer = await store.producer("mail")
    for first in range(0, MESSAGES, 10_000):
        await producer.enqueue_many(range(first, first + 10_000))
    async with await store.consumer("mail") as consumer:
        began = time.perf_counter()
        await consumer.process(_handle, concurrency=CONCURRENCY, until_idle=True)
    return MESSAGES / (time.perf_counter() - began)


async def _handle(_message: pgqrs.Message) -> None:
    """Does nothing."""


async def runs(store: pgqrs.Store) -> float:
    await pgqrs.workflow("flow").trigger_many(range(RUNS)).execute(store)
    worker = await pgqrs.consumer("bench", 0, "flow").handler(_one_step).concurrency(CONCURRENCY).create(store)
    began = time.perf_counter()
    await worker.run_until_idle()
    rate = RUNS / (time.perf_counter() - began)
    await worker.close()
    return rate


async def _one_step(ctx: Any, params: Any) -> Any:
    return await ctx.step("one", lambda: params)


@contextlib.asynccontextmanager
async def dashboards(dsn: str, many: int) -> AsyncIterator[asyncio.Future[int]]:
    """So many readers, all of them listening when this begins; how many pages they fetched when it has ended."""
    fetched: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    if not many:
        fetched.set_result(0)
        yield fetched
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pgqrs", "-d", dsn, "serve", "--port", str(port)]
    serving = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert serving.stdout is not None
    token = (await serving.stdout.readline()).decode().rpartition("token=")[2].strip()
    readers = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, str(port), str(many)),
        env={**os.environ, TOKEN: token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert readers.stdout is not None
    try:
        assert await readers.stdout.readline() == b"listening\n"
        yield fetched
    finally:
        said, _ = await readers.communicate(b"enough\n")
        fetched.set_result(int(said or 0))
        serving.terminate()
        await serving.wait()


# -- the readers ---------------------------------------------------------------------------------------------------


class Reader:
    """One open page: a stream, and the page once more when it hints at something."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self.listening = asyncio.Event()
        self.fetched = 0

    async def follow(self) -> None:
        await self._fetch()
        reader, _ = await self._asked("/stream")
        hinted = asyncio.Event()
        fetching = asyncio.create_task(self._refetch(hinted))
        self.listening.set()
        try:
            while line := await reader.readline():
                if line.startswith(b"data:"):
                    hinted.set()
        finally:
            fetching.cancel()

    async def _refetch(self, hinted: asyncio.Event) -> None:
        while True:
            await hinted.wait()
            hinted.clear()
            began = time.monotonic()
            await self._fetch()
            await asyncio.sleep(max(0.0, began + PAUSE_SECONDS - time.monotonic()))

    async def _fetch(self) -> None:
        reader, writer = await self._asked(self._path)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        self.fetched += 1

    async def _asked(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        lines = ("host: localhost", f"authorization: Bearer {os.environ[TOKEN]}", "accept-encoding: gzip")
        head = "\r\n".join([f"GET {path} HTTP/1.1", *lines, "connection: close", "", ""])
        writer.write(head.encode())
        return reader, writer


async def read(port: int, many: int) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(OSError):
                await asyncio.open_connection("127.0.0.1", port)
                break
            await asyncio.sleep(0.05)
    readers = [Reader(port, PAGES[number % len(PAGES)]) for number in range(many)]
    following = [asyncio.create_task(reader.follow()) for reader in readers]
    await asyncio.gather(*(reader.listening.wait() for reader in readers))
    print("listening", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    print(sum(reader.fetched for reader in readers))


if __name__ == "__main__":
    asyncio.run(read(int(sys.argv[1]), int(sys.argv[2])))
