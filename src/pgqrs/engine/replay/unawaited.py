"""Steps and waits that a handler called and has not awaited yet: one that it never awaits was never run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any

from pgqrs.errors import PermanentError


class UnawaitedCalls:
    """The calls of one pass that have not begun, by their step ids."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[str, Coroutine[Any, Any, Any]] = {}

    def add(self, step_id: str, asked: Coroutine[Any, Any, Any]) -> None:
        self._calls[step_id] = asked

    def begun(self, step_id: str) -> None:
        """It is awaited now, or another call stands for it."""
        self._calls.pop(step_id, None)

    async def check(self, *, has_tasks: bool) -> None:
        """At the end of the handler, which may have tasks left; raises PermanentError for a forgotten `await`."""
        if self._calls and has_tasks:
            # It may have been given to a task that has not had its first turn.
            await asyncio.sleep(0)
        forgotten = {step_id: each for step_id, each in self._calls.items() if _was_never_begun(each)}
        self._calls.clear()
        if forgotten:
            for each in forgotten.values():
                # Named here, Python need not warn of it, too.
                each.close()
            names = ", ".join(map(repr, forgotten))
            raise PermanentError(
                f"{names} was called and not awaited, so it never ran", hint="put `await` before the call"
            )


def _was_never_begun(coroutine: Coroutine[Any, Any, Any]) -> bool:
    """False when a task got it, and was cancelled before its first turn."""
    if isinstance(coroutine, CoroutineType):
        return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    return not getattr(coroutine, "is_begun", True)


def tells_of_a_coroutine(error: BaseException) -> bool:
    """True for `unsupported operand type(s) for +: 'coroutine' and 'int'` and the like."""
    return "'coroutine'" in str(error) or "'Waiter'" in str(error)
