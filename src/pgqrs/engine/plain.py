"""What a plain `def` handler is given: the same verbs without `await`. It and its branches run in threads."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from pgqrs.engine.branches import Branch, current_branch
from pgqrs.engine.children import Child
from pgqrs.engine.context import Context
from pgqrs.engine.execution import Suspend
from pgqrs.engine.threads import start_thread
from pgqrs.errors import ConfigError, InvalidTransition


class SyncContext:
    """Each verb is called and awaited on the event loop, in the branch that asks here."""

    __pgqrs_context__ = True

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self.run_id, self.workflow, self.attempt = context.run_id, context.workflow, context.attempt
        self.idempotency_key, self.log = context.idempotency_key, context.log

    @property
    def cancelled(self) -> bool:
        return self._context.cancelled

    @property
    def attributes(self) -> dict[str, Any]:
        return self._context.attributes

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._context, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            branch = current_branch.get()

            async def over_there() -> Any:
                current_branch.set(branch)
                result = await verb(*args, **kwargs)
                return SyncChild(result, self._loop) if isinstance(result, Child) else result

            return _over_there(over_there(), self._loop)

        return call

    def gather(self, *functions: Callable[[], Any]) -> list[Any]:
        """Calls the functions side by side, each in a thread and a branch of its own; their results in order.

        All of them come to an end, or to a wait, before the first error is raised.
        """
        for function in functions:
            if not callable(function):
                raise ConfigError("in a plain handler gather takes functions: ctx.gather(lambda: ..., lambda: ...)")
        here = current_branch.get()

        async def branches() -> list[Branch]:
            parent = here or self._context._execution.root  # noqa: SLF001 - the other half of this class
            return [parent.child() for _ in functions]

        threads = [
            start_thread(self._in_branch, function, branch)
            for function, branch in zip(functions, _over_there(branches(), self._loop), strict=True)
        ]
        errors = [error for thread in threads if (error := thread.exception()) is not None]
        for error in sorted(errors, key=lambda error: not isinstance(error, Suspend)):
            raise error
        return [thread.result() for thread in threads]

    def _in_branch(self, function: Callable[[], Any], branch: Branch) -> Any:
        current_branch.set(branch)
        try:
            return function()
        finally:
            self._loop.call_soon_threadsafe(branch.end)


class SyncChild:
    """A run that a plain handler has started."""

    def __init__(self, child: Child, loop: asyncio.AbstractEventLoop) -> None:
        self._child = child
        self._loop = loop
        self.run_id = child.run_id

    def result(self) -> Any:
        branch = current_branch.get()

        async def over_there() -> Any:
            current_branch.set(branch)
            return await self._child.result()

        return _over_there(over_there(), self._loop)


def _over_there(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """On the event loop, as a task that is no branch of the handler's."""
    if loop.is_closed():
        work.close()
        raise InvalidTransition("the call that executed this run has ended, and its context cannot be used any more")
    context = contextvars.copy_context()
    context.run(current_branch.set, None)
    return context.run(asyncio.run_coroutine_threadsafe, work, loop).result()
