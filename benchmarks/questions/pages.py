"""How long the server takes for every page and list, beside a million runs with five million steps.

`ROWS=1000000 ON=sqlite make bench WHAT=pages`. Every GET of the table of routes is asked, in process, so that nothing
but our own work and the database's is in the figure; a route that this file has no example for fails it. `DSN=...`
asks a database that stays: filled the first time, only asked from then on.
"""

import asyncio
import math
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import psycopg

import pgqrs
from benchmarks.databases import both
from benchmarks.filling import past
from pgqrs.web import Caller, Scope, app
from pgqrs.web.application import endpoints

ROWS = int(os.environ.get("ROWS", "1_000_000"))
TIMES = int(os.environ.get("ROUNDS") or "20")
TARGET_MS = 50.0
# What stands for a part of a path.
PARTS = {
    "run_id": lambda: str(ROWS // 2),
    "workflow": lambda: "flow_3",
    "queue": lambda: "flow_3",
    "name": lambda: "flow_3",
    "worker_id": lambda: "1",
    "schedule": lambda: "nightly",
    "step_id": lambda: "charge",
    "cursor": lambda: "",
}
# Asked beside the plain path: what people filter by.
QUERIES = {
    "runs": (
        "",
        "?q=status:error",
        "?q=workflow:flow_3",
        "?q=workflow:flow_3%20status:error",
        "?q=attr:customer=c42",
        "?q=since:1h",
        "?q=status:pending,running,paused",
        "?q=error:TimeoutError:7",
        "?q=parent:5",
        "?q=since:1h%20text:answer",
        "?q=worker:3",
    ),
    "failures": ("", "?since=7d"),
    "bulk": ("?verb=cancel&run=5&run=6", "?verb=restart&which=all&q=status:error%20since:1h"),
    "download": ("?what=run",),
    "system": ("", "?doctor=yes"),
}
# They wait on purpose, or never end.
NOT_ASKED = ("/stream", "/result")


async def main() -> None:
    if dsn := os.environ.get("DSN"):
        async with pgqrs.connect(dsn, install=True) as store:
            await measure(store.config.backend, store)
        return
    async with both() as stores:
        for name, store in stores.items():
            if name in (os.environ.get("ON") or name):
                await measure(name, store)


async def _reader(_request: Any) -> Caller:
    return Caller("bench", frozenset({Scope.READ}))


async def measure(name: str, store: pgqrs.Store) -> None:
    if not await pgqrs.admin(store).runs(limit=1):
        await fill(store)
    ask = Asking(app(store, authorize=_reader))
    slow = 0
    for path in paths():
        took, status = [], 0
        for _ in range(TIMES):
            began = time.perf_counter()
            status = await ask(path)
            took.append((time.perf_counter() - began) * 1000)
        p50, p95 = statistics.median(took), sorted(took)[math.ceil(len(took) * 0.95) - 1]
        if status != 200:
            raise RuntimeError(f"{path} answers {status}: that is not what was to be measured")
        slow += p95 > TARGET_MS
        mark = "" if p95 <= TARGET_MS else "  <-- over 50 ms"
        print(f"{name:<9} {path:<60} {status}  p50 {p50:7.1f} ms  p95 {p95:7.1f} ms{mark}", flush=True)
    print(f"{name}: {slow} over {TARGET_MS:.0f} ms, {ROWS:,} runs, {TIMES} times each", flush=True)


async def fill(store: pgqrs.Store) -> None:
    await past(store, ROWS)
    await store.create_queue("mail")
    await pgqrs.schedules(store).create("nightly", "flow_1", cron="0 3 * * *")
    await pgqrs.consumer("web-1", 0, "flow_3").handler(_handler).create(store)
    if store.config.backend == "postgres":
        # What autovacuum does within minutes; here it would be at it while we measure.
        with psycopg.connect(store.config.dsn, autocommit=True) as connection:
            connection.execute("vacuum analyze")


def paths() -> Iterator[str]:
    for endpoint in endpoints():
        if endpoint.method != "GET" or endpoint.path.endswith(NOT_ASKED):
            continue
        path = "/".join(
            _example(_part(each), endpoint.path) if each.startswith("{") else each
            for each in endpoint.path.split("/")
        )
        for query in QUERIES.get(path.rpartition("/")[2], ("",)):
            yield path + query


def _example(part: str, path: str) -> str:
    # Pages call whatever has a name by its name.
    return PARTS["schedule" if part == "name" and path.startswith("/schedules") else part]()


def _part(text: str) -> str:
    """`run_id` of `{run_id:int}`."""
    return text.strip("{}").partition(":")[0]


class Asking:
    """A browser that has nothing in between: calls the application, reads all of the answer."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, path: str) -> int:
        bare, _, query = path.partition("?")
        status = 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)

        await self._application(
            {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "GET",
                "path": bare,
                "raw_path": bare.encode(),
                "query_string": query.encode(),
                "root_path": "",
                "scheme": "http",
                "headers": [(b"host", b"localhost"), (b"accept-encoding", b"gzip")],
                "client": ("127.0.0.1", 1),
                "server": ("127.0.0.1", 7890),
            },
            receive,
            send,
        )
        return status


async def _handler(ctx: Any, params: Any) -> Any:
    del ctx
    return params


if __name__ == "__main__":
    asyncio.run(main())
