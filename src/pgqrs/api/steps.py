"""`@step`: a function whose calls inside a run are recorded."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from pgqrs.api.arguments import unknown_option
from pgqrs.durations import shown
from pgqrs.engine.context import Context, current_context
from pgqrs.engine.declared import is_context, types_of
from pgqrs.engine.plain import SyncContext
from pgqrs.engine.steps import in_step
from pgqrs.errors import ConfigError
from pgqrs.names import checked_step_name
from pgqrs.retry import RetryPolicy, checked_policy


def step(
    function: Callable[..., Any] | str | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the seeds' word
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
            raise ConfigError(f"step has two names, {function!r} and {id!r}; keep one")
        function, id = None, function  # noqa: A001 - as above
    name = None if id is None else checked_step_name(id)
    if function is None:
        return lambda decorated: _decorated(decorated, name, policy)
    return _decorated(function, name, policy)


def _decorated(function: Callable[..., Any], given_name: str | None, retry: RetryPolicy | None) -> Any:
    if not callable(function):
        raise ConfigError(
            f"step() decorates a function or takes a name, got {shown(function)}; write @pgqrs.step(id='...')"
        )
    name = checked_step_name(given_name or function.__name__)
    parameters = list(inspect.signature(function).parameters.values())
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
            "would not be recorded; call the workflow with that context, and the step inside it with its own `ctx`"
        )
    if current is not None and current.run_id != given.run_id:
        raise ConfigError(
            f"step {step_name!r} was called in run {current.run_id} with the context of another run, "
            f"{given.run_id}; call it with the `ctx` of the workflow that calls it"
        )


def _unknown(options: dict[str, Any]) -> ConfigError:
    error = unknown_option("step", options, ("id", "retry"), named_by="id")
    if next(iter(options)) == "timeout":
        return ConfigError(f"{error}; a timeout is an option of ctx.step(name, function, timeout=...)")
    return error
