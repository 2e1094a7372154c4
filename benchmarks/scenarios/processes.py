"""Workers as processes of their own, and what a process costs: `python -m benchmarks.scenarios.processes KIND ...`.

A worker says `ready`, begins when it hears a line, and ends with its standard input.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pgqrs
from benchmarks.scenarios.place import WORKFLOW, Place, steps

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A worker process, from outside."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    async def line(self) -> str:
        line = (await self._child.stdout.readline()).decode()
        if not line:
            raise RuntimeError("the worker process has ended")
        return line.strip()

    def begin(self) -> None:
        self._child.stdin.write(b"begin\n")

    async def end(self) -> None:
        self._child.stdin.close()
        try:
            await asyncio.wait_for(self._child.wait(), 20)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()


@asynccontextmanager
async def process(place: Place, kind: str, concurrency: int = 10) -> AsyncIterator[Process]:
    """A worker process that is ready, but has not begun; the default concurrency is the library's."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.scenarios.processes", kind, place.dsn, place.schema, str(concurrency)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    started = Process(child)
    try:
        if (said := await started.line()) != "ready":
            raise RuntimeError(f"the worker process said {said!r}")
        yield started
    finally:
        await started.end()


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB


def cpu_seconds(pid: int) -> float:
    """What the process has used so far, its children that have ended included."""
    # The name in parentheses may hold blanks; the fields after it do not.
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        # It has just ended: what it used is its parent's by now.
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if parent_of(int(folder.name)) == pid:
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


# From here on: the worker process itself.


def _handler(kind: str) -> Callable[..., Any]:
    async def tell(_ctx: pgqrs.PyWorkflow, number: int) -> None:
        # CLOCK_MONOTONIC is one for all processes of a Linux machine.
        started = time.monotonic()
        print(json.dumps([number, started]), flush=True)

    async def sleep(ctx: pgqrs.PyWorkflow) -> None:
        await ctx.sleep(30 * 86_400)

    match kind:
        case "tell":
            return tell
        case "sleep":
            return sleep
        case _:
            return steps(int(kind))


async def _main(kind: str, dsn: str, schema: str, concurrency: str) -> None:
    logging.getLogger("pgqrs").setLevel(logging.ERROR)
    async with pgqrs.connect(dsn, schema=schema) as store:
        built = pgqrs.consumer(f"bench-{os.getpid()}", 0, WORKFLOW).handler(_handler(kind))
        worker = await built.concurrency(int(concurrency)).create(store)
        print("ready", flush=True)
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        if not await lines.readline():
            return
        polling = asyncio.create_task(worker.poll_forever())
        await lines.read()
        worker.stop()
        await polling


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
