"""Makes the tasks of an event loop: those that a handler begins become branches of it; the engine's own do not."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine, Sequence
from types import FrameType
from typing import Any

from pgqrs.engine.replay.branch_tasks import BranchTask
from pgqrs.engine.replay.branches import (
    Branch,
    current_branch,
    current_context,
    handled_error,
    handled_here,
    is_left_generator,
)
from pgqrs.engine.replay.stack_room import check_stack_room
from pgqrs.tasks import is_detached

# Where `asyncio.as_completed` makes tasks: Python 3.13 has a class for it.
_AS_COMPLETED = frozenset(
    getattr(function, "__code__", None)
    for function in (
        asyncio.as_completed,
        getattr(getattr(asyncio.tasks, "_AsCompletedIterator", None), "__init__", None),
    )
) - {None}
# Between that and the task factory: a comprehension, `ensure_future`, `create_task`, other factories.
_MOST_FRAMES = 8


def _order_in_as_completed(coro: object) -> Sequence[Any] | None:
    """What `as_completed` was given when it makes a task of this coroutine; empty when that has no order."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        if frame.f_code in _AS_COMPLETED:
            given = frame.f_locals.get("fs", frame.f_locals.get("aws"))
            return given if isinstance(given, list | tuple) and any(each is coro for each in given) else ()
        frame = frame.f_back
    return None


# An application may have set it. Python 3.12 is the first that has it.
_EAGER: Any = getattr(asyncio, "eager_task_factory", None)


class _TaskFactory:
    """Makes the tasks of an event loop: one that begins in a branch is a branch of it."""

    __pgqrs__ = True

    def __init__(self, inner: Callable[..., asyncio.Future[Any]] | None) -> None:
        # One that was there before goes on making the tasks.
        self._inner = inner

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Future[Any]:
        context = options.pop("context", None)
        if context is not None and current_branch not in context and not is_detached(context):
            # A handler that gives its task an empty context: the task is a part of it all the same.
            context = context.copy()
            context.run(current_branch.set, current_branch.get())
            context.run(current_context.set, current_context.get())
        parent = current_branch.get() if context is None else context.get(current_branch)
        if parent is not None:
            check_stack_room()
        if type(coro).__name__ == "async_generator_athrow":
            # The garbage collector closes a generator of some other run, at any moment: it is no branch of this one.
            context = contextvars.copy_context() if context is None else context.copy()
            context.run(is_left_generator.set, True)  # noqa: FBT003 - a variable's value
            return self._task(loop, coro, None, context, options)
        order = None if parent is None else _order_in_as_completed(coro)
        if parent is None or not order or context is not None:
            child = None if parent is None else parent.child(is_unordered=order == ())
            return self._task(loop, coro, child, context, options)
        if id(coro) not in parent.made:
            # It asks for them in the order of a set: all of them begin here, in the order of its list.
            for each in order:
                if asyncio.iscoroutine(each) and id(each) not in parent.made:
                    parent.made[id(each)] = self._task(loop, each, parent.child(), None, options)
        return parent.made.pop(id(coro))

    def _task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        child: Branch | None,
        context: contextvars.Context | None,
        options: dict[str, Any],
    ) -> asyncio.Future[Any]:
        """A task of this branch; of none, it may still come to execute a handler."""
        if child is not None:
            context = contextvars.copy_context() if context is None else context.copy()
            context.run(current_branch.set, child)
            if (error := handled_here()) is not None:
                context.run(handled_error.set, error)
        given = options if context is None else {**options, "context": context}
        task: asyncio.Future[Any]
        if self._inner is None:
            task = BranchTask(coro, of=child, loop=loop, **given)
        elif self._inner is _EAGER:
            # Those of handlers do not start eagerly: a worker without this factory may replay the run.
            task = BranchTask(coro, of=child, loop=loop, **{"eager_start": child is None, **given})
        else:
            task = self._inner(loop, coro, **given)
        if child is not None:
            child.run_in(task)
            task.add_done_callback(child.end)
        return task


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Idempotent."""
    inner = loop.get_task_factory()
    if not getattr(inner, "__pgqrs__", False):
        loop.set_task_factory(_TaskFactory(inner))  # type: ignore[arg-type]


def outside(coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task of the engine's own, or a step's body: part of no branch."""
    context = contextvars.copy_context()
    context.run(current_branch.set, None)
    return asyncio.get_running_loop().create_task(coro, context=context)
