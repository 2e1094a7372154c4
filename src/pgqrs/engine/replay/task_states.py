"""When may a run be put to rest? When every task of its handler waits, for something durable or for one another.

The engine knows the state of a branch (`branch_state.py`), but not what one that is RUNNING waits for. Looked at, a
branch is one of these:

    WAITING   in a wait of the context, which only a later pass ends
    OTHERS    for its own tasks, or for something that another branch must release (a lock, a queue, an event)
    OUTSIDE   for a timer, a socket, a thread: it continues in this pass
    READY     the event loop is about to run it

asyncio does not say what a task waits for. The future it waits for and the innermost coroutine tell enough.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, AsyncExitStack
from enum import Enum
from pathlib import Path
from types import AsyncGeneratorType, CodeType, CoroutineType, FunctionType, MethodType
from typing import Any, TypeAlias

from pgqrs.engine.replay.branch_state import BranchState
from pgqrs.engine.replay.branch_tasks import BranchTask
from pgqrs.engine.replay.branches import Branch

_GatheringFuture: Any = getattr(asyncio.tasks, "_GatheringFuture", ())
# Modules of asyncio in which a task waits for other tasks, and functions of another one that do.
_BETWEEN_TASKS = frozenset({asyncio.taskgroups.__file__, asyncio.locks.__file__, asyncio.queues.__file__})
_WAITS_FOR_TASKS = frozenset({"_wait", "wait", "wait_for", "_wait_for_one"})
_ANYIO = ("anyio", "_backends", "_asyncio.py")
# Objects between a coroutine and the one, or the generator, that it awaits.
_WRAPPERS = frozenset({"async_generator_asend", "async_generator_athrow", "coroutine_wrapper"})
_Suspended: TypeAlias = "CoroutineType[Any, Any, Any] | AsyncGeneratorType[Any, Any]"


class Pending(Enum):
    WAITING = "waiting"
    OTHERS = "others"
    OUTSIDE = "outside"
    READY = "ready"


def awaitable(branches: Collection[Branch]) -> set[object]:
    """What one branch of a run awaits to wait for another: its task, or what `asyncio.shield` puts before that."""
    tasks = [branch.task for branch in branches]
    return {*tasks, *(shield for task in tasks if isinstance(task, BranchTask) for shield in task.shields)}


def pending(branch: Branch, tasks: Collection[object]) -> Pending:
    """What the branch waits for; `tasks` are the `awaitable` ones of all branches of the run."""
    task = branch.task
    if is_ready(branch):
        # Also one that waited: the handler may have given its wait up, and is about to hear of it.
        return Pending.READY
    if branch.state is BranchState.WAITING:
        return Pending.WAITING
    if isinstance(task, asyncio.Task):
        future = awaited_by(task)
        is_for_others = future in tasks or isinstance(future, _GatheringFuture) or _is_between_tasks(task)
    else:
        # A thread: it works until it asks the context, or waits for the threads of its branches.
        is_for_others = branch.joining > 0
    return Pending.OTHERS if is_for_others else Pending.OUTSIDE


def is_ready(branch: Branch) -> bool:
    """True when the event loop is about to run it."""
    task = branch.task
    return isinstance(task, asyncio.Task) and not task.done() and awaited_by(task) is None


def has_deadline(task: asyncio.Future[Any] | None) -> bool:
    """True when `asyncio.timeout` or `asyncio.wait_for` surrounds what the task waits for.

    Asked while the task is suspended, when its coroutines refer to what their `async with` blocks will call.
    """
    return isinstance(task, asyncio.Task) and any(map(_holds_a_deadline, _coroutines(task)))


def _holds_a_deadline(coroutine: _Suspended) -> bool:
    code = _code(coroutine)
    # Python 3.11's wait_for, and asyncio.wait, have a timer of their own.
    has_timer = code.co_filename == asyncio.tasks.__file__ and code.co_name in _WAITS_FOR_TASKS
    for found in gc.get_referents(coroutine):
        held = found.__self__ if isinstance(found, MethodType) else found
        if isinstance(held, AsyncExitStack):
            held = next((each for each in _entered(held) if isinstance(each, asyncio.Timeout)), held)
        if isinstance(held, asyncio.Timeout) and held.when() is not None and "[active]" in repr(held):
            return True
        # By its name: uvloop has a class of its own.
        if has_timer and type(held).__name__ == "TimerHandle":
            return True
    return any(_is_scope_with_a_deadline(each) for held in _to_leave(coroutine) for each in (held, *_inside(held)))


def _is_scope_with_a_deadline(held: object) -> bool:
    """True for what `anyio.move_on_after` gives; told by its name, as pgqrs does not need anyio."""
    kind = type(held)
    is_scope = kind.__name__ == "CancelScope" and kind.__module__.partition(".")[0] == "anyio"
    return is_scope and getattr(held, "deadline", math.inf) < math.inf


def _inside(held: object) -> Iterator[object]:
    """What a context manager that is written as a generator, as `anyio.fail_after` is, will leave itself."""
    for found in _to_leave(getattr(held, "gen", None)) if isinstance(held, AbstractContextManager) else ():
        yield found
        yield from _inside(found)


def _to_leave(suspended: object) -> Iterator[object]:
    """What the `with` blocks in which a coroutine or a generator is suspended will leave.

    Python keeps the method that they will call; from 3.14 on its function, and then the object.
    """
    before: object = None
    for found in gc.get_referents(suspended):
        if isinstance(found, MethodType):
            yield found.__self__
        elif isinstance(before, FunctionType) and before.__name__ in {"__exit__", "__aexit__"}:
            yield found
        before = found


def _entered(stack: AsyncExitStack[Any]) -> Iterator[object]:
    """What a stack will leave again."""
    for _, leave in getattr(stack, "_exit_callbacks", ()):
        yield getattr(leave, "__self__", leave)


def awaited_by(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """What the task waits for; None while it runs, or is about to because that has come."""
    future = getattr(task, "_fut_waiter", None)
    return future if isinstance(future, asyncio.Future) and not future.done() else None


def _is_between_tasks(task: asyncio.Task[Any]) -> bool:
    """True when the innermost coroutine is one of asyncio's that waits for another task."""
    codes = [_code(each) for each in _coroutines(task)]
    if not codes:
        return False
    code = codes[-1]
    if code.co_name == "__aexit__" and Path(code.co_filename).parts[-3:] == _ANYIO:
        # A task group of anyio's.
        return True
    return code.co_filename in _BETWEEN_TASKS or (
        code.co_filename == asyncio.tasks.__file__ and code.co_name in _WAITS_FOR_TASKS
    )


def _coroutines(task: asyncio.Task[Any]) -> Iterator[_Suspended]:
    """From the task's own to the innermost; async generators among them."""
    found: Any = task.get_coro()
    while found is not None:
        if isinstance(found, CoroutineType):
            yield found
            found = found.cr_await
        elif isinstance(found, AsyncGeneratorType):
            yield found
            found = found.ag_await
        else:
            # What `async for` and `async with` await of a generator names it among what it refers to.
            inner = [each for each in gc.get_referents(found) if isinstance(each, AsyncGeneratorType | CoroutineType)]
            found = inner[0] if inner and type(found).__name__ in _WRAPPERS else None


def _code(suspended: _Suspended) -> CodeType:
    return suspended.cr_code if isinstance(suspended, CoroutineType) else suspended.ag_code
