"""Tasks of the library's own, which serve a whole store and belong to no handler."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_detached: contextvars.ContextVar[bool] = contextvars.ContextVar("pgqrs_detached")


def detached(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Begin a task with nothing of the context of the call that happens to need it first.

    A task that begins in a handler is a branch of it: it takes a number that a branch of the handler has in a replay,
    and is cancelled when the handler ends.
    """
    context = contextvars.Context()
    context.run(_detached.set, True)  # noqa: FBT003 - a variable's value
    return asyncio.get_running_loop().create_task(work, name=name, context=context)


def is_detached(context: contextvars.Context) -> bool:
    """True for the context of such a task."""
    return _detached in context
