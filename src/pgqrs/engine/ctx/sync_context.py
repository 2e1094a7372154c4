"""What a plain `def` handler is given: the same verbs without `await`. It and its branches run in threads."""

# Overloads overlap on purpose: the first that fits is the one.
# mypy: disable-error-code="overload-overlap"
from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from pgqrs.engine.ctx.children import ChildRun
from pgqrs.engine.ctx.context import Context
from pgqrs.engine.ctx.loop_calls import awaited, branch_here, only_named_waits, over_there
from pgqrs.engine.ctx.race import First, first, waiters
from pgqrs.engine.replay.branches import Branch, current_branch, handled_error, handled_here
from pgqrs.engine.replay.refusals import refuse_in_body
from pgqrs.engine.replay.unwinding import EngineSignal
from pgqrs.engine.threads import start_thread
from pgqrs.errors import ConfigError, PermanentError
from pgqrs.text import step_ids

if TYPE_CHECKING:
    import uuid
    from collections.abc import Awaitable
    from datetime import datetime, timedelta

    from pgqrs.db.database import Transaction
    from pgqrs.engine.ctx.run_log import RunLog
    from pgqrs.retry import RetryPolicy
    from pgqrs.types import PlainChild, PlainData, Returning

P = ParamSpec("P")
T = TypeVar("T")
Plain = TypeVar("Plain", bound="PlainData")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")


class SyncContext:
    """Each verb is called and awaited on the event loop, in the branch that asks here.

    In the body of a step, which may run on that loop itself, nothing is awaited: a verb gives its value, or refuses.
    """

    __pgqrs_context__ = True

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self.run_id: int
        self.workflow: str
        self.attempt: int
        self.idempotency_key: str
        self.log: RunLog
        self.run_id, self.workflow, self.attempt = context.run_id, context.workflow, context.attempt
        self.idempotency_key, self.log = context.idempotency_key, context.log

    @property
    def cancelled(self) -> bool:
        return self._context.cancelled

    @property
    def step_key(self) -> str:
        return self._context.step_key

    @property
    def attributes(self) -> dict[str, Any]:
        return self._context.attributes

    if TYPE_CHECKING:
        # The verbs that `__getattr__` gives; a test compares them with those of `Context`.

        @overload
        def step(
            self,
            name: str,
            function: Callable[..., Awaitable[T]],
            *args: Any,
            retry: RetryPolicy | None,
            timeout: float | None = ...,
            **kwargs: Any,
        ) -> T: ...
        @overload
        def step(
            self,
            name: str,
            function: Callable[..., Awaitable[T]],
            *args: Any,
            retry: RetryPolicy | None = ...,
            timeout: float | None,
            **kwargs: Any,
        ) -> T: ...
        @overload
        def step(
            self,
            name: str,
            function: Callable[..., T],
            *args: Any,
            retry: RetryPolicy | None,
            timeout: float | None = ...,
            **kwargs: Any,
        ) -> T: ...
        @overload
        def step(
            self,
            name: str,
            function: Callable[..., T],
            *args: Any,
            retry: RetryPolicy | None = ...,
            timeout: float | None,
            **kwargs: Any,
        ) -> T: ...
        @overload
        def step(self, name: str, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
        @overload
        def step(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
        def step(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any: ...

        def transaction(self, name: str, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T: ...

        def emit(self, event_type: str, data: Any = None) -> None: ...

        def sleep(self, seconds: float | timedelta) -> None: ...

        @overload
        def pause(self, message: str = ..., *, type: type[T]) -> T: ...
        @overload
        def pause(self, message: str = ..., *, type: Any = ...) -> Any: ...
        def pause(self, message: str = "resume", *, type: Any = Any) -> Any: ...  # noqa: A002 - as in Context

        @overload
        def wait_for(self, name: str, *, timeout: float | timedelta | None = ..., type: type[T]) -> T: ...
        @overload
        def wait_for(self, name: str, *, timeout: float | timedelta | None = ..., type: Any = ...) -> Any: ...
        def wait_for(self, name: str, *, timeout: float | timedelta | None = None, type: Any = Any) -> Any: ...  # noqa: A002 - as in Context

        @overload
        def spawn(self, workflow: Returning[Plain], params: Any = ...) -> PlainChild[Plain]: ...
        @overload
        def spawn(self, workflow: Returning[Any] | str, params: Any = ...) -> PlainChild[Any]: ...
        def spawn(self, workflow: Any, params: Any = None) -> Any: ...

        def progress(self, done: int, total: int | None = None, note: str = "") -> None: ...

        def now(self) -> datetime: ...

        def uuid(self) -> uuid.UUID: ...

        def random(self) -> float: ...
    else:

        def __getattr__(self, name: str) -> Any:
            verb = getattr(self._context, name)
            run_pass = self._context._run_pass  # noqa: SLF001 - the other half of this class

            def call(*args: Any, **kwargs: Any) -> Any:
                result = awaited(lambda: verb(*args, **kwargs), run_pass, self._loop)
                return SyncChild(result, self._loop) if isinstance(result, ChildRun) else result

            return call

    @overload
    def map(
        self,
        workflow: Returning[Plain],
        items: Iterable[Any],
        *,
        limit: int | None = ...,
        return_exceptions: Literal[False] = ...,
    ) -> list[Plain]: ...
    @overload
    def map(
        self,
        workflow: Returning[Plain],
        items: Iterable[Any],
        *,
        limit: int | None = ...,
        return_exceptions: Literal[True],
    ) -> list[Plain | BaseException]: ...
    @overload
    def map(
        self,
        workflow: Returning[Any] | str,
        items: Iterable[Any],
        *,
        limit: int | None = ...,
        return_exceptions: bool = ...,
    ) -> list[Any]: ...
    def map(
        self, workflow: Any, items: Iterable[Any], *, limit: int | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        # In this thread, and not on the event loop: a generator may ask for steps.
        given = list(items)
        run_pass = self._context._run_pass  # noqa: SLF001 - the other half of this class
        results: list[Any] = awaited(
            lambda: self._context.map(workflow, given, limit=limit, return_exceptions=return_exceptions),
            run_pass,
            self._loop,
        )
        return results

    def first(self, *functions: Callable[[], Any], **named: Callable[[], Any]) -> First:
        """As in async handlers, with functions: `ctx.first(lambda: ctx.sleep(60), lambda: ctx.wait_for("go"))`."""
        run_pass = self._context._run_pass  # noqa: SLF001 - the other half of this class
        refuse_in_body("first")
        token = only_named_waits.set(True)
        try:
            waits = tuple(map(_called, functions))
            by_name = {name: _called(function) for name, function in named.items()}
        finally:
            only_named_waits.reset(token)

        async def race() -> First:
            return await first(run_pass, run_pass.place(step_ids.FIRST), waiters(waits, by_name))

        winner: First = awaited(race, run_pass, self._loop)
        return winner

    # As in Context: a list, said to be a tuple where the values are of several types.
    @overload
    def gather(
        self, first: Callable[[], T1], second: Callable[[], T2], /, *, return_exceptions: Literal[False] = ...
    ) -> tuple[T1, T2]: ...
    @overload
    def gather(
        self,
        first: Callable[[], T1],
        second: Callable[[], T2],
        third: Callable[[], T3],
        /,
        *,
        return_exceptions: Literal[False] = ...,
    ) -> tuple[T1, T2, T3]: ...
    @overload
    def gather(
        self,
        first: Callable[[], T1],
        second: Callable[[], T2],
        third: Callable[[], T3],
        fourth: Callable[[], T4],
        /,
        *,
        return_exceptions: Literal[False] = ...,
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    def gather(
        self,
        first: Callable[[], T1],
        second: Callable[[], T2],
        third: Callable[[], T3],
        fourth: Callable[[], T4],
        fifth: Callable[[], T5],
        /,
        *,
        return_exceptions: Literal[False] = ...,
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    def gather(self, *functions: Callable[[], T], return_exceptions: Literal[False] = ...) -> list[T]: ...
    @overload
    def gather(self, *functions: Callable[[], T], return_exceptions: bool) -> list[T | BaseException]: ...
    def gather(self, *functions: Callable[[], Any], return_exceptions: bool = False) -> Any:
        """Calls the functions side by side, each in a thread and a branch of its own; their results in order.

        All of them come to an end, or to a wait, before the first error is raised; with `return_exceptions` errors
        are among the results instead.
        """
        for function in functions:
            if not callable(function):
                raise ConfigError("in a plain handler gather takes functions: ctx.gather(lambda: ..., lambda: ...)")
        run_pass = self._context._run_pass  # noqa: SLF001 - the other half of this class
        # Its branches would be counted in this pass, and not in a replay, which does not run the body.
        refuse_in_body("gather")
        parent = branch_here()
        if parent is None:
            raise PermanentError("threads come in no order: call ctx.gather in the workflow itself, not in a thread")

        async def branches() -> list[Branch]:
            run_pass.check_usable()
            # It waits for its branches from now on: when they all wait, so does the run.
            parent.joining += len(functions)
            begun = [parent.child() for _ in functions]
            for branch in begun:
                branch.gathered_in, branch.is_collected = functions, return_exceptions
            return begun

        token = handled_error.set(handled_here())
        try:
            threads = [
                start_thread(self._in_branch, function, branch)
                for function, branch in zip(functions, over_there(branches(), run_pass, self._loop), strict=True)
            ]
        finally:
            handled_error.reset(token)
        results = [thread.result() for thread in threads]
        errors = [error for _, error in results if error is not None]
        for error in sorted(errors, key=lambda error: not isinstance(error, EngineSignal)):
            if not return_exceptions or not isinstance(error, Exception):
                raise error
        return [value if error is None else error for value, error in results]

    def _in_branch(self, function: Callable[[], Any], branch: Branch) -> tuple[Any, BaseException | None]:
        current_branch.set(branch)
        branch.thread = threading.get_ident()
        try:
            return function(), None
        except BaseException as error:  # noqa: BLE001 - raised again by `gather`, which has all of them
            branch.error = error
            return None, error
        finally:
            self._loop.call_soon_threadsafe(branch.end_thread)


def _called(function: Callable[[], Any]) -> Any:
    if not callable(function):
        raise ConfigError("in a plain handler first takes functions: ctx.first(lambda: ctx.sleep(60), ...)")
    return function()


class SyncChild:
    """A run that a plain handler has started."""

    def __init__(self, child: ChildRun, loop: asyncio.AbstractEventLoop) -> None:
        self._child = child
        self._loop = loop
        self.run_id: int = child.run_id

    def result(self) -> Any:
        return awaited(self._child.result, self._child.run_pass, self._loop)
