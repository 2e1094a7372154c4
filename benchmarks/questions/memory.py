"""How much memory `pgqrs serve` takes at most for each GET, where every row is as large as a row may be.

`make bench WHAT=memory`. Sixty runs, messages, dead letters, events, schedules and steps with values of 2 MB each,
and texts of 2 MB where an older version let an operator write them. Each route gets a server of its own; the figure
is the peak of its resident memory (VmHWM) after the largest page was read to its end.
"""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psycopg

import pgqrs
from benchmarks.databases import server
from pgqrs.web.application import endpoints
from pgqrs.web.auth import tokens
from pgqrs.web.routing import Endpoint

COUNT = int(os.environ.get("ROWS") or "60")
MOST_MB = 200
LARGE = 2 * 2**20 - 1_000
PARTS = {"run_id": "1", "worker_id": "1", "workflow": "flow", "queue": "mail", "schedule": "s0", "name": "flow"}
# They never end, or have an end of their own.
NOT_ASKED = ("/stream",)
MORE = {"/runs/{run_id:int}/download": ("?what=run", "?what=input", "?what=output&step=s0")}


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pgqrs-bench-") as folder:
        file = Path(folder) / "tokens"
        token = tokens.create(file, "reader", ["read"])
        async with server() as dsn:
            for name, place in (("sqlite", f"sqlite:///{Path(folder) / 'bench.db'}"), ("postgres", dsn)):
                if name in (os.environ.get("ON") or name):
                    await fill(place)
                    _enlarge(place)
                    measure(name, place, file, token)


async def fill(dsn: str) -> None:
    """All that the API takes, as large as it takes it."""
    # Small parts: parsed, they take twenty times their size.
    small = [[]] * (LARGE // 3)
    large = "x" * LARGE

    async def handler(ctx: Any, params: Any) -> Any:
        if params == large:
            await ctx.emit("large.v1", large)
            return None
        for number in range(COUNT):
            await ctx.step(f"s{number}", lambda: large)
        return small

    async with pgqrs.connect(dsn, install=True) as store:
        await store.create_workflow("flow")
        await store.create_workflow("waits")
        await store.create_queue("mail")
        await store.create_queue("dead")
        flow = pgqrs.workflow("flow")
        first = await flow.trigger(small, attributes={f"a{n}": n for n in range(60_000)}).execute(store)
        for number in range(COUNT):
            await flow.trigger(large, attributes={"large": large}).execute(store)
            waiting = await pgqrs.workflow("waits").trigger(None, delay=3600).execute(store)
            await pgqrs.workflow("waits").signal(waiting, store, "go", large)
            await pgqrs.schedules(store).create(f"s{number}", "flow", cron="0 0 1 1 *", params=large)
            for queue in ("mail", "dead"):
                await (await store.producer(queue)).enqueue(
                    large, max_attempts=1, priority=7 if queue == "dead" else 0
                )
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(2).create(store)
        await worker.run_until_idle()
        await worker.close()
        await pgqrs.workflow("flow").delete(first + 1, store, reason="x" * 2_000)


# Texts that an older version, or a program of somebody else, has written.
_ENLARGING = (
    "update pgqrs_workflow_runs set last_error = {large}, delete_reason = {large}, status = 'ERROR' where run_id > 1",
    "update pgqrs_workflow_events set data = {json} where run_id = 1 or event_id % 2 = 0",
    "update pgqrs_messages set attempts = max_attempts where priority = 7",
    "update pgqrs_outbox_events set last_error = {large}, dead_at = created_at where event_id % 2 = 0",
)


def _enlarge(dsn: str) -> None:
    if dsn.startswith("sqlite"):
        letters = f"replace(hex(zeroblob({LARGE // 2})), '0', 'x')"
        with contextlib.closing(sqlite3.connect(dsn.removeprefix("sqlite:///"))) as file, file:
            for each in _ENLARGING:
                file.execute(each.format(large=letters, json=f"'\"' || {letters} || '\"'"))
        return
    letters = f"repeat('x', {LARGE})"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for each in _ENLARGING:
            connection.execute(each.format(large=letters, json=f"to_json({letters})"))  # type: ignore[arg-type]


def measure(name: str, dsn: str, file: Path, token: str) -> None:
    over = 0
    for path in paths():
        with serving(dsn, file) as (port, pid):
            before = peak_mb(pid)
            started = time.perf_counter()
            status, size = ask(port, path, token)
            took = time.perf_counter() - started
            peak = peak_mb(pid)
        over += peak > MOST_MB
        mark = f"  <-- over {MOST_MB} MB" if peak > MOST_MB else ""
        print(
            f"{name:<9} {path:<58} {status} {size / 2**20:7.2f} MB {took:6.2f} s  "
            f"peak {peak:5.0f} MB, {before:.0f} before{mark}",
            flush=True,
        )
    print(f"{name}: {over} over {MOST_MB} MB, {COUNT} rows of 2 MB each", flush=True)


def paths() -> Iterator[str]:
    for endpoint in endpoints():
        if endpoint.method == "GET" and not endpoint.path.endswith(NOT_ASKED):
            path = "/".join(
                PARTS[each.strip("{}").partition(":")[0]] if each.startswith("{") else each
                for each in endpoint.path.split("/")
            )
            for query in MORE.get(endpoint.path, (_largest(endpoint),)):
                yield (path.replace("/flow", "/s0") if path.startswith("/schedules") else path) + query
    yield "/api/v1/queues/dead/dead?limit=1000"
    yield "/api/v1/runs/1/steps?limit=1"


def _largest(endpoint: Endpoint) -> str:
    fields = () if endpoint.query is None else endpoint.query.__struct_fields__
    return "?limit=1000" if "limit" in fields else ""


def ask(port: int, path: str, token: str) -> tuple[int, int]:
    request = Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urlopen(request, timeout=120) as answer:
            size = 0
            while piece := answer.read(65536):
                size += len(piece)
            return answer.status, size
    except OSError as error:
        return getattr(error, "code", 0), 0


@contextlib.contextmanager
def serving(dsn: str, file: Path) -> Iterator[tuple[int, int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pgqrs.cli", "serve", "--port", "0", "--tokens", str(file)],
        env={**os.environ, "PGQRS_DSN": dsn},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        yield int(line.rpartition(":")[2].partition("/")[0]), process.pid
    finally:
        process.kill()
        process.communicate()


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    asyncio.run(main())
