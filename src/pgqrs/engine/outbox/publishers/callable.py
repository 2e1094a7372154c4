"""A Python function as a receiver."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pgqrs.engine.threads import in_thread
from pgqrs.errors import ConfigError
from pgqrs.types import OutboxEvent


class CallablePublisher:
    """Calls `fn(event)`; a plain function runs in a thread. What it raises means: not taken, try again later.

    A plain function that is not done by the dispatcher's deadline cannot be stopped: it goes on in its thread while
    the event is tried again. Give it a time limit of its own.
    """

    def __init__(self, fn: Callable[[OutboxEvent], Any]) -> None:
        if not callable(fn):
            raise ConfigError(f"a publisher is an object with `publish(event)` or a function, not {fn!r}")
        self._fn = fn
        self._is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 - an object with an async __call__

    async def publish(self, event: OutboxEvent) -> None:
        result = self._fn(event) if self._is_async else await in_thread(self._fn, event)
        if inspect.isawaitable(result):
            result = await result
        if hasattr(result, "run_forever"):
            # It took the event for a store, and sent nothing: that must not count as published.
            raise ConfigError(f"{self!r} returned a dispatcher", hint="a publisher takes an event and sends it")

    def __repr__(self) -> str:
        return f"CallablePublisher({getattr(self._fn, '__qualname__', self._fn)})"
