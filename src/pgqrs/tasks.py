"""Tasks of the library's own, which serve a whole store and belong to no handler."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def detached(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Begin a task with nothing of the context of the call that happens to need it first.

    A task that begins in a handler is a branch of it: it takes a number that a branch of the handler has in a replay,
    and is cancelled when the handler ends.
    """
    return asyncio.get_running_loop().create_task(work, name=name, context=contextvars.Context())
