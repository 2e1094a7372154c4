"""`@step`: a function whose calls inside a run are recorded."""

# Overloads overlap on purpose: the first that fits is the one.
# mypy: disable-error-code="overload-overlap"
from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from pgqrs.api.arguments import check_function, unknown_option
from pgqrs.engine.ctx.context import Context
from pgqrs.engine.ctx.steps import in_step
from pgqrs.engine.ctx.sync_context import SyncContext
from pgqrs.engine.definitions.signature import is_context, signature_of, types_of
from pgqrs.engine.replay.branches import current_context
from pgqrs.errors import ConfigError
from pgqrs.retry import RetryPolicy, checked_policy
from pgqrs.text.durations import shown
from pgqrs.text.names import checked_step_name

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Owner = TypeVar("Owner")


class AnyValue:
    """For type checkers: a first parameter that takes this class takes everything, so it has no type, or Any.

    Whether it is the context depends on its name, which types cannot see: arguments are then not checked.
    """


class AsyncStep(Protocol[P, T_co]):
    """A decorated `async def`; the context may be passed on, or left out."""

    __name__: str

    @overload
    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, T_co]: ...
    @overload
    def __call__(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> T_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, T_co]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]

    @overload
    def __get__(self, instance: None, owner: Any) -> AsyncStep[P, T_co]: ...
    @overload
    def __get__(self: AsyncStep[Concatenate[Owner, Q], T_co], instance: Owner, owner: Any) -> AsyncStep[Q, T_co]: ...
    def __get__(self, instance: Any, owner: Any) -> Any: ...


class PlainStep(Protocol[P, T_co]):
    """A decorated plain `def`: awaited where it is called with the context of an async workflow."""

    __name__: str

    @overload
    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, T_co]: ...
    @overload
    def __call__(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> T_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]

    @overload
    def __get__(self, instance: None, owner: Any) -> PlainStep[P, T_co]: ...
    @overload
    def __get__(self: PlainStep[Concatenate[Owner, Q], T_co], instance: Owner, owner: Any) -> PlainStep[Q, T_co]: ...
    def __get__(self, instance: Any, owner: Any) -> Any: ...


class DecoratingStep(Protocol):
    """What `@step("fetch")` is before it has its function."""

    @overload
    def __call__(self, function: Callable[Concatenate[AnyValue, P], Awaitable[T]], /) -> AsyncStep[..., T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[T]], /) -> AsyncStep[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[T]], /) -> AsyncStep[P, T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[AnyValue, P], T], /) -> PlainStep[..., T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], T], /) -> PlainStep[P, T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], T], /) -> PlainStep[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> PlainStep[P, T]: ...
    def __call__(self, function: Any, /) -> Any: ...


@overload
def step(name: str, /, *, retry: RetryPolicy | None = ...) -> DecoratingStep: ...
@overload
def step(*, id: str | None = ..., retry: RetryPolicy | None = ...) -> DecoratingStep: ...
@overload
def step(function: Callable[Concatenate[AnyValue, P], Awaitable[T]], /) -> AsyncStep[..., T]: ...
@overload
def step(function: Callable[Concatenate[Context, P], Awaitable[T]], /) -> AsyncStep[P, T]: ...
@overload
def step(function: Callable[P, Awaitable[T]], /) -> AsyncStep[P, T]: ...
@overload
def step(function: Callable[Concatenate[AnyValue, P], T], /) -> PlainStep[..., T]: ...
@overload
def step(function: Callable[Concatenate[SyncContext, P], T], /) -> PlainStep[P, T]: ...
@overload
def step(function: Callable[Concatenate[Context, P], T], /) -> PlainStep[P, T]: ...
@overload
def step(function: Callable[P, T], /) -> PlainStep[P, T]: ...
def step(
    function: Callable[..., Any] | str | None = None,
    *,
    id: str | None = None,  # noqa: A002 - a step's id is what it names
    retry: RetryPolicy | None = None,
    **unknown: Any,
) -> Any:
    """`@step`, `@step("fetch")` or `@step(id="fetch")`: inside a run the call is recorded once, outside it is a plain
    call. Without a name the step has the function's.
    """
    if unknown:
        raise _unknown(unknown)
    policy = checked_policy("step", retry)
    if isinstance(function, str):
        if id is not None:
            raise ConfigError(f"step has two names, {function!r} and {id!r}", hint="keep one")
        function, id = None, function  # noqa: A001 - as above
    name = None if id is None else checked_step_name(id)
    if function is None:
        return lambda decorated: _decorated(decorated, name, policy)
    return _decorated(function, name, policy)


def _decorated(function: Callable[..., Any], given_name: str | None, retry: RetryPolicy | None) -> Any:
    if not callable(function):
        raise ConfigError(
            f"step() decorates a function or takes a name, got {shown(function)}", hint="write @pgqrs.step(id='...')"
        )
    name = checked_step_name(given_name or function.__name__)
    check_function("step", name, function)
    parameters = list(signature_of(function).parameters.values())
    takes_context = bool(parameters) and is_context(parameters[0], types_of(function))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        current = current_context.get()
        given = args[0] if args and getattr(type(args[0]), "__pgqrs_context__", False) else None
        if given is not None:
            _check_context(name, given, current)
        context = current if given is None else given
        if context is None or in_step():
            return function(*args, **kwargs)
        if given is not None and not takes_context:
            args = args[1:]
        if given is None and takes_context:
            args = (context, *args)
        return context.step(name, function, *args, retry=retry, **kwargs)

    return call


def _check_context(step_name: str, given: Any, current: Any) -> None:
    """A step that is called with the context of a run must be recorded there, or refused."""
    if not isinstance(given, Context | SyncContext):
        raise ConfigError(
            f"step {step_name!r} was called with the context of run {given.run_id} outside its workflow, where it "
            "would not be recorded",
            hint="call the workflow with that context, and the step inside it with its own `ctx`",
        )
    if current is not None and current.run_id != given.run_id:
        raise ConfigError(
            f"step {step_name!r} was called in run {current.run_id} with the context of another run, {given.run_id}",
            hint="call it with the `ctx` of the workflow that calls it",
        )


def _unknown(options: dict[str, Any]) -> ConfigError:
    error = unknown_option("step", options, ("id", "retry"), named_by="id")
    if next(iter(options)) == "timeout":
        return ConfigError(f"{error}", hint="a timeout is an option of ctx.step(name, function, timeout=...)")
    return error
