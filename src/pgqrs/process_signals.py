"""Signals of the operating system: how a process that serves is told to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

# By name: not every system has SIGHUP, and this module must be importable there.
STOP = ("SIGTERM", "SIGINT", "SIGHUP")
# What a shell says of a process that SIGTERM has ended.
TERMINATED = 143


@contextmanager
def on_signals(act: Callable[[], object], *names: str, if_possible: bool = False) -> Iterator[None]:
    """Call `act` on the running loop at each of these signals, while the block lasts.

    Only the main thread hears of signals; in another one this raises RuntimeError, or does nothing `if_possible`.
    """
    loop = asyncio.get_running_loop()
    is_deaf = if_possible and threading.current_thread() is not threading.main_thread()
    caught = [] if is_deaf else [signal.Signals[name] for name in names]
    for each in caught:
        loop.add_signal_handler(each, act)
    try:
        yield
    finally:
        for each in caught:
            loop.remove_signal_handler(each)


def run_until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """Run a command in a loop of its own and return its exit code.

    SIGTERM and SIGHUP cancel it, as asyncio does at Ctrl-C, so that it leaves nothing behind.
    """

    async def cancelled_by_signals() -> int:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio.run makes one
        with on_signals(task.cancel, "SIGTERM", "SIGHUP"):
            return await work

    try:
        return asyncio.run(cancelled_by_signals())
    except asyncio.CancelledError:
        return TERMINATED
