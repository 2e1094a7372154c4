"""Threads for plain handlers and steps: as many as are at work, reused when they are idle.

Not asyncio's own pool: that has a handful of threads, and plain handlers that hold them all while each waits for a
thread for its step would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

# A bound against mistakes; concurrency decides how many there are.
_MOST_THREADS = 2_000


def _new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="pgqrs-code")


def _forget_threads() -> None:
    """A forked child has the pool's books but none of its threads: it would wait for an idle one for ever."""
    global _pool  # noqa: PLW0603 - the module's one pool
    _pool = _new_pool()
    _running.clear()


_pool = _new_pool()
_running: set[Future[Any]] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def start_thread(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """The function in a thread of the pool, with the caller's context variables; for callers that have no loop."""
    context = contextvars.copy_context()
    running = _pool.submit(context.run, function, *args)
    _running.add(running)
    running.add_done_callback(_running.discard)
    return running


def are_busy() -> bool:
    """True while code of a handler runs in a thread: Python would wait for it at the end of the process."""
    return bool(_running)


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function's result; it sees the caller's context variables."""
    result, error = await asyncio.wrap_future(start_thread(caught, function, args, kwargs))
    if error is not None:
        raise error
    return result


def caught(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """The result and the error, as values: a future refuses to hold a StopIteration, and its waiter would hang."""
    try:
        return function(*args, **kwargs), None
    except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
        return None, error
