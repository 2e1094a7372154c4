"""The demo: durability seen, not read. Consumers are real processes, one of them is really killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from pgqrs.api.admin import admin
from pgqrs.api.connect import connect
from pgqrs.api.store import Store

QUEUE = "thumbnails"
LEASE_SECONDS = 2.0
# Ten consumers' worth of patience; a demo that hangs is worse than one that fails.
PATIENCE_SECONDS = 120.0


def run(count: int) -> int:
    """0 when every message was processed, although one consumer was killed while it held some."""
    with tempfile.TemporaryDirectory(prefix="pgqrs-demo-") as folder:
        return asyncio.run(_Demo(Path(folder), count).play())


class _Demo:
    def __init__(self, folder: Path, count: int) -> None:
        self._dsn = f"sqlite:///{folder / 'demo.db'}"
        self._ledger = folder / "processed"
        self._count = count
        self._console = Console(highlight=False)
        self._started = time.monotonic()
        self._consumers: list[subprocess.Popen[bytes]] = []

    async def play(self) -> int:
        self._say("database", "sqlite, a temporary file")
        async with connect(self._dsn) as store:
            await store.create_queue(QUEUE)
            producer = await store.producer(QUEUE)
            await producer.enqueue_many({"picture": n} for n in range(self._count))
            self._say("queue", f"{self._count} messages in {QUEUE!r}")
            try:
                for _ in range(2):
                    self._start_consumer()
                return await self._watch(store)
            finally:
                self._stop_consumers()

    async def _watch(self, store: Store) -> int:
        killed: int | None = None
        redelivered = 0
        columns = (TextColumn("          {task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task("processed", total=self._count)
            while time.monotonic() - self._started < PATIENCE_SECONDS:
                metrics = await admin(store).queue_metrics(QUEUE)
                progress.update(task, completed=metrics.archived)
                if killed is None and metrics.archived >= self._count // 4:
                    killed = await self._kill_one(store)
                    self._start_consumer()
                if metrics.archived == self._count:
                    break
                await asyncio.sleep(0.1)
        processed = self._processed()
        redelivered = sum(1 for line in processed if line[2] > 1)
        return self._verdict({n for n, _, _ in processed}, killed, redelivered)

    async def _kill_one(self, store: Store) -> int:
        """SIGKILL for one that holds messages at this very moment."""
        victim = self._consumers.pop(0)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        held = [w.leased for w in await admin(store).workers(QUEUE) if w.info.get("pid") == victim.pid]
        self._say(
            "killed",
            f"consumer {victim.pid} with SIGKILL, holding {sum(held)}; back after the {LEASE_SECONDS:.0f} s lease",
        )
        return sum(held)

    def _verdict(self, seen: set[int], held: int | None, redelivered: int) -> int:
        seconds = time.monotonic() - self._started
        missing = self._count - len(seen)
        if missing or held is None:
            self._say("failed", f"{missing} of {self._count} messages were never processed ({seconds:.1f} s)")
            return 1
        self._say(
            "done", f"{self._count} of {self._count} processed, {redelivered} delivered again ({seconds:.1f} s)"
        )
        return 0

    def _start_consumer(self) -> None:
        command = [sys.executable, "-m", "pgqrs.cli.demo", self._dsn, str(self._ledger)]
        process = subprocess.Popen(command)  # noqa: S603 - our own module, our own arguments
        self._consumers.append(process)
        self._say("consumer", f"started (pid {process.pid})")

    def _stop_consumers(self) -> None:
        for process in self._consumers:
            process.terminate()
        for process in self._consumers:
            process.wait()

    def _processed(self) -> list[tuple[int, int, int]]:
        """What the consumers wrote down: picture, pid, attempt."""
        lines = self._ledger.read_text(encoding="ascii").splitlines() if self._ledger.exists() else []
        return [(int(n), int(pid), int(attempt)) for n, pid, attempt in map(str.split, lines)]

    def _say(self, noun: str, text: str) -> None:
        self._console.print(f"  {noun:<9} {text}", markup=False)


async def consume(dsn: str, ledger: str) -> None:
    """The consumer process: slow enough to be killed in the middle of something."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    with Path(ledger).open("ab", buffering=0) as file:  # noqa: ASYNC230 - a few bytes, in a demo
        async with connect(dsn) as store, await store.consumer(QUEUE) as consumer:
            while not stopping.is_set():
                for message in await consumer.dequeue(5, lease_seconds=LEASE_SECONDS, wait_seconds=0.5):
                    await _make_thumbnail(message.payload)
                    file.write(f"{message.payload['picture']} {os.getpid()} {message.attempts}\n".encode())
                    await message.archive()


async def _make_thumbnail(payload: dict[str, Any]) -> None:
    del payload
    await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(consume(*sys.argv[1:]))
