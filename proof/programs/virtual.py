"""An event loop of the oracle's own: time passes when there is nothing else to do, and at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


class Stuck(Exception):
    """Nothing will ever happen any more."""


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Also from within another loop: it comes to its end before this returns."""
    loop = VirtualLoop()
    around = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return loop.run_until_complete(work)
    finally:
        _end_all(loop)
        loop.close()
        asyncio._set_running_loop(around)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.seconds = 0.0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        return self.seconds


class _Impatient(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("nothing is left that could happen")
        self._loop.seconds += max(timeout, 0)
        return []


def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()

    async def all_of_them() -> None:
        await asyncio.gather(*tasks, return_exceptions=True)

    with suppress(Stuck):
        loop.run_until_complete(all_of_them())
