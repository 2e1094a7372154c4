"""`make fuzz COUNT=100000`: hostile requests to every route, and how many of them were answered how."""

from __future__ import annotations

import asyncio
import collections
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import pgqrs
from pgqrs.web import RateLimit
from pgqrs.web.pagination import PAGE_CHARACTERS
from rig.fuzz import Fuzzer
from rig.http import opened

# Beyond this much more than at the start, something is kept that should not be.
MOST_GROWN_BYTES = 300 * 1024 * 1024
# What an answer may have at most: the texts of a page, each character escaped, and what is around them.
MOST_ANSWER_BYTES = 6 * PAGE_CHARACTERS + 4 * 2**20
# Far more than any route takes here: what is slow in its input is slower than that.
MOST_SECONDS = 60.0


async def ask(application, request) -> tuple[int, bytes]:
    """One request through ASGI, with nothing in between that would make it more polite."""
    method, url, headers, body = request
    path, _, query = url.partition("?")
    from urllib.parse import unquote

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii", "replace"),
        "query_string": query.encode("ascii", "replace"),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
        "client": ("127.0.0.1", 5555),
        "server": ("127.0.0.1", 7890),
    }
    sent, status, answer = False, 0, b""

    async def receive():
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        nonlocal status, answer
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            answer += message.get("body", b"")

    await application(scope, receive, send)
    return status, answer


async def furnish(store) -> None:
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *")
    await pgqrs.workflow("flow").trigger_many(range(100), attributes={"a": "b"}).execute(store)


async def fuzz(store, *, count: int, seed: int, tell=None) -> collections.Counter[int]:
    """How often each status was answered; raises with the request that got a 500, or made the application raise."""
    application = opened(store, rate=RateLimit(0))
    fuzzer, statuses = Fuzzer(seed), collections.Counter()
    for number in range(count):
        request = fuzzer.request()
        started = time.monotonic()
        try:
            status, answer = await ask(application, request)
        except Exception as error:
            raise AssertionError(f"request {number} of seed {seed} raised: {request!r}") from error
        statuses[status] += 1
        if status == 500 or status < 200:
            raise AssertionError(f"request {number} of seed {seed} got {status}: {request!r}: {answer!r}")
        if len(answer) > MOST_ANSWER_BYTES or time.monotonic() - started > MOST_SECONDS:
            raise AssertionError(f"request {number} of seed {seed} got {len(answer):,} bytes, late: {request!r}")
        if tell is not None and number % 5_000 == 4_999:
            tell(number + 1, statuses)
    return statuses


def _bytes() -> int:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def main(count: int, seed: int) -> None:
    dsn = os.environ.get("PGQRS_FUZZ_DSN")
    with tempfile.TemporaryDirectory(prefix="pgqrs-fuzz-") as folder:
        async with pgqrs.connect(dsn or f"sqlite:///{folder}/fuzz.db", install=True) as store:
            await furnish(store)
            await fuzz(store, count=min(count, 2_000), seed=seed + 1)
            before, started = _bytes(), time.monotonic()

            def tell(done: int, statuses: collections.Counter[int]) -> None:
                print(f"{done:>8,} requests, {_bytes() / 2**20:.0f} MB, {dict(sorted(statuses.items()))}", flush=True)

            statuses = await fuzz(store, count=count, seed=seed, tell=tell)
            grown = _bytes() - before
            violations = await pgqrs.admin(store).check_invariants()
    print(f"seed {seed}: {count:,} requests in {time.monotonic() - started:.0f} s, {statuses[500]} x 500")
    print(f"by status: {dict(sorted(statuses.items()))}")
    print(
        f"memory: {before / 2**20:.0f} MB before, {grown / 2**20:+.0f} MB after; invariants broken: {len(violations)}"
    )
    if grown > MOST_GROWN_BYTES or violations:
        sys.exit(1)


if __name__ == "__main__":
    asyncio.run(main(int(os.environ.get("COUNT") or 20_000), int(os.environ.get("SEED") or 1)))
