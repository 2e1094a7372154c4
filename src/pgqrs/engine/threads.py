"""Threads for plain handlers and steps: as many as are at work, reused when they are idle.

Not asyncio's own pool: that has a handful of threads, and plain handlers that hold them all while each waits for a
thread for its step would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

# A bound against mistakes; concurrency decides how many there are.
_MOST_THREADS = 2_000
_pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="pgqrs-code")


def start_thread(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """The function in a thread of the pool, with the caller's context variables; for callers that have no loop."""
    context = contextvars.copy_context()
    return _pool.submit(context.run, function, *args)


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function's result; it sees the caller's context variables."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_pool, lambda: context.run(function, *args, **kwargs))
