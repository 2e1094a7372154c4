"""Handlers: what a workflow's function takes and gives, read once from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple, Never, NoReturn, get_type_hints

from pgqrs.errors import ConfigError
from pgqrs.retry import RetryPolicy
from pgqrs.serialization import decode, encode

_CONTEXT_NAMES = frozenset({"ctx", "context", "_ctx", "workflow_ctx", "wf_ctx"})

# The handlers of the workflows that this process has decorated, by name.
decorated: dict[str, Handler] = {}
# The handlers that this process's workers serve, by workflow: they tell `run.output()` its type.
served: dict[str, Handler] = {}


@dataclass(frozen=True, slots=True)
class WorkflowOptions:
    """How a workflow wants to be run. `concurrency` is per worker; `schedule` is what schedules are declared with."""

    retry: RetryPolicy | None = None
    lease_seconds: float | None = None
    concurrency: int | None = None
    dead_letter: str | None = None
    schedule: Any = None


@dataclass(frozen=True, slots=True)
class Handler:
    """A workflow's function and its shape."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    takes_context: bool
    parameters: tuple[inspect.Parameter, ...]
    types: dict[str, Any]
    returns: Any
    options: WorkflowOptions = WorkflowOptions()

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], *, options: WorkflowOptions | None = None) -> Handler:
        function = getattr(function, "__pgqrs_handler__", function)
        if isinstance(function, Handler):
            return function
        try:
            parameters = tuple(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            raise ConfigError(f"the handler of workflow {name!r} must be a function, not {function!r}") from None
        types = types_of(function)
        takes_context = bool(parameters) and is_context(parameters[0], types)
        return cls(
            name=name,
            function=function,
            is_async=inspect.iscoroutinefunction(inspect.unwrap(function)),
            takes_context=takes_context,
            parameters=parameters[1:] if takes_context else parameters,
            types=types,
            returns=types.get("return", Any),
            options=options or WorkflowOptions(),
        )

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, max_bytes: int) -> str:
        """One argument is stored as it is, several as an object by name."""
        if len(self.parameters) == 1 and len(args) == 1 and not kwargs:
            return encode(args[0], max_bytes=max_bytes)
        try:
            bound = inspect.Signature(list(self.parameters)).bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigError(f"workflow {self.name!r}: {error}") from None
        if len(self.parameters) == 1 and len(bound.arguments) == 1:
            return encode(next(iter(bound.arguments.values())), max_bytes=max_bytes)
        return encode(dict(bound.arguments) or None, max_bytes=max_bytes)

    def decode_input(self, text: str | None) -> dict[str, Any]:
        """The stored input as the handler's arguments, of the annotated types."""
        if not self.parameters:
            return {}
        if len(self.parameters) == 1:
            only = self.parameters[0]
            if text is None or (text == "null" and only.default is not inspect.Parameter.empty):
                return {} if only.default is not inspect.Parameter.empty else {only.name: None}
            return {only.name: decode(text, self.types.get(only.name, Any))}
        plain = decode(text or "null")
        if plain is None:
            return {}
        if not isinstance(plain, dict):
            raise ConfigError(
                f"workflow {self.name!r} takes {len(self.parameters)} arguments: trigger it with all of them"
            )
        return {
            p.name: decode(encode(plain[p.name]), self.types[p.name]) if p.name in self.types else plain[p.name]
            for p in self.parameters
            if p.name in plain
        }


class Shape(NamedTuple):
    """What a step's function is, and what it says that it returns."""

    is_async: bool
    returns: Any


_PLAIN = Shape(is_async=False, returns=Any)
_REMEMBERED = "__pgqrs_shape__"


def shape_of(function: Callable[..., Any]) -> Shape:
    """Remembered for each function: reading annotations takes longer than all else that a step needs."""
    if type(function) is not FunctionType:
        return Shape(inspect.iscoroutinefunction(function), return_type(function))
    remembered: tuple[int, Shape] = function.__dict__.get(_REMEMBERED, (0, _PLAIN))
    owner, known = remembered
    # Whoever wraps a function copies its attributes, too: what is remembered names whose it is.
    if owner != id(function):
        known = Shape(inspect.iscoroutinefunction(function), return_type(function))
        function.__dict__[_REMEMBERED] = (id(function), known)
    return known


def return_type(function: Callable[..., Any]) -> Any:
    """What a step's function says that it returns; Any when it does not say."""
    hint = types_of(function).get("return", Any)
    # A function that only ever raises (a pause) says so; what it is resumed with may be anything.
    return Any if hint in (type(None), NoReturn, Never) else hint


def types_of(function: Callable[..., Any]) -> dict[str, Any]:
    if not getattr(function, "__annotations__", True):
        return {}
    try:
        return get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        # A hint that cannot be read now (a local class, a missing import) is no hint.
        return {}


def is_context(parameter: inspect.Parameter, types: dict[str, Any]) -> bool:
    hint = types.get(parameter.name)
    return parameter.name in _CONTEXT_NAMES or getattr(hint, "__pgqrs_context__", False) is True
