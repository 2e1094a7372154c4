"""When may a run be put to rest? When every task of its handler waits, for something durable or for one another.

A branch is, at any moment, one of these:

    WAITING   in a wait of the context, which only a later pass ends
    OTHERS    for its own tasks, or for something that another branch must release (a lock, a queue, an event)
    OUTSIDE   for a timer, a socket, a thread: it continues in this pass
    READY     the event loop is about to run it

asyncio does not say what a task waits for. The future it waits for and the innermost coroutine tell enough.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Collection, Iterator
from enum import Enum
from types import CoroutineType, MethodType
from typing import Any

from pgqrs.engine.branches import Branch

_GatheringFuture: Any = getattr(asyncio.tasks, "_GatheringFuture", ())
# Modules of asyncio in which a task waits for other tasks, and functions of another one that do.
_BETWEEN_TASKS = frozenset({asyncio.taskgroups.__file__, asyncio.locks.__file__, asyncio.queues.__file__})
_WAITS_FOR_TASKS = frozenset({"_wait", "wait", "wait_for", "_wait_for_one"})


class Pending(Enum):
    WAITING = "waiting"
    OTHERS = "others"
    OUTSIDE = "outside"
    READY = "ready"


def pending(branch: Branch, tasks: Collection[object]) -> Pending:
    """What the branch waits for; `tasks` are those of all branches of the run."""
    task = branch.task
    if branch.blocked:
        return Pending.WAITING
    if isinstance(task, asyncio.Task):
        future = awaited_by(task)
        if future is None:
            return Pending.READY
        is_for_others = future in tasks or isinstance(future, _GatheringFuture) or _is_between_tasks(task)
    else:
        # A thread: it works until it asks the context, or waits for the threads of its branches.
        is_for_others = branch.joining
    return Pending.OTHERS if is_for_others else Pending.OUTSIDE


def has_deadline(task: asyncio.Future[Any] | None) -> bool:
    """True when `asyncio.timeout` or `asyncio.wait_for` surrounds what the task waits for.

    Asked while the task is suspended, when its coroutines refer to what their `async with` blocks will call.
    """
    return isinstance(task, asyncio.Task) and any(map(_holds_a_deadline, _coroutines(task)))


def _holds_a_deadline(coroutine: CoroutineType[Any, Any, Any]) -> bool:
    for found in gc.get_referents(coroutine):
        held = found.__self__ if isinstance(found, MethodType) else found
        if isinstance(held, asyncio.Timeout) and held.when() is not None:
            return True
        # Python 3.11's wait_for has a timer of its own.
        if isinstance(held, asyncio.TimerHandle) and coroutine.cr_code is asyncio.wait_for.__code__:
            return True
    return False


def awaited_by(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """What the task waits for; None while it runs, or is about to because that has come."""
    future = getattr(task, "_fut_waiter", None)
    return future if isinstance(future, asyncio.Future) and not future.done() else None


def _is_between_tasks(task: asyncio.Task[Any]) -> bool:
    """True when the innermost coroutine is one of asyncio's that waits for another task."""
    code = None
    for coroutine in _coroutines(task):
        code = coroutine.cr_code
    if code is None:
        return False
    return code.co_filename in _BETWEEN_TASKS or (
        code.co_filename == asyncio.tasks.__file__ and code.co_name in _WAITS_FOR_TASKS
    )


def _coroutines(task: asyncio.Task[Any]) -> Iterator[CoroutineType[Any, Any, Any]]:
    """From the task's own to the innermost."""
    coroutine: Any = task.get_coro()
    while isinstance(coroutine, CoroutineType):
        yield coroutine
        coroutine = coroutine.cr_await
