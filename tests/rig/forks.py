"""Workers in forked children: up in some 30 ms, with a handler of the test's own, to be killed or to be told to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pgqrs


def child(main: Callable[[], Coroutine[Any, Any, Any]]) -> int:
    """Runs a coroutine in a forked child, on an event loop of its own; gives its pid. It ends with 0, or with 1."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        asyncio._set_running_loop(None)
        asyncio.new_event_loop().run_until_complete(main())
        code = 0
    finally:
        # Nothing of the parent's may be cleaned up here.
        os._exit(code)


def worker(config: pgqrs.Config, handler: Callable[..., Any], *, grace: float = 10, lease_seconds: float = 1) -> int:
    """A worker in a child of its own; gives its pid."""
    return child(lambda: serve(config, handler, grace=grace, lease_seconds=lease_seconds))


async def serve(
    config: pgqrs.Config, handler: Callable[..., Any], *, grace: float = 10, lease_seconds: float = 1
) -> None:
    """Works for the workflow `flow`; drains when it is told to by a signal."""
    store = await pgqrs.connect_with(config.with_changes(lease_seconds=lease_seconds))
    builder = pgqrs.consumer(f"w-{os.getpid()}", 0, "flow").handler(handler).grace(grace).concurrency(20)
    await (await builder.create(store)).poll_forever(signals=True)
    await store.close()


async def ended(pid: int) -> int:
    """Its exit code; minus the number of the signal that killed it."""
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    return os.waitstatus_to_exitcode(status)
