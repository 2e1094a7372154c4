"""Handlers: what a workflow's function takes and gives, read once from its signature."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple, Never, NoReturn

from pgqrs.engine.definitions.binding import bind, named_text
from pgqrs.engine.definitions.signature import context_of, signature_of, types_of
from pgqrs.errors import ConfigError, InvalidArguments, SerializationError
from pgqrs.inputs import Stored, read
from pgqrs.retry import RetryPolicy
from pgqrs.serialization import decode, encode, from_parsed, naming, text_of
from pgqrs.text.durations import shown

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
    """A workflow's function and its shape. As a `Signature` it tells what the workflow takes."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    takes_context: bool
    parameters: tuple[inspect.Parameter, ...]
    # Of the parameters.
    names: tuple[str, ...]
    types: dict[str, Any]
    returns: Any
    options: WorkflowOptions = WorkflowOptions()

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], *, options: WorkflowOptions | None = None) -> Handler:
        function = getattr(function, "__pgqrs_handler__", function)
        if isinstance(function, Handler):
            return function
        try:
            parameters = tuple(signature_of(function).parameters.values())
        except (TypeError, ValueError):
            raise ConfigError(f"the handler of workflow {name!r} must be a function, not {function!r}") from None
        types = types_of(function)
        context = context_of(name, function, parameters, types)
        taken = tuple(each for each in parameters if each.name != context)
        for each in taken:
            _check_nameable(name, each)
        return cls(
            name=name,
            function=_callable_by_name(function, parameters, context),
            is_async=_is_async(inspect.unwrap(function)),
            takes_context=context is not None,
            parameters=taken,
            names=tuple(each.name for each in taken),
            types=types,
            returns=types.get("return", Any),
            options=options or WorkflowOptions(),
        )

    @property
    def workflow(self) -> str:
        return self.name

    @property
    def required(self) -> frozenset[str]:
        return frozenset(each.name for each in self.parameters if each.default is inspect.Parameter.empty)

    def misfit(self, name: str, text: str) -> str | None:
        """Return why an encoded value cannot be that argument, or None."""
        kind = self.types.get(name, Any)
        if kind is Any:
            return None
        try:
            decode(text, kind)
        except SerializationError as error:
            return misfit(kind, decode(text), error)
        return None

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, max_bytes: int) -> str:
        """Return what is stored for a call with these arguments, or raise InvalidArguments."""
        try:
            bound = inspect.Signature(list(self.parameters)).bind(*args, **kwargs)
        except TypeError as error:
            raise self._unbound(kwargs, error) from None
        if not bound.arguments:
            return "null"
        with naming(f"the input of workflow {self.name!r}"):
            encode(dict(bound.arguments), max_bytes=max_bytes)
        return named_text(self, {name: encode(value) for name, value in bound.arguments.items()})

    def _unbound(self, kwargs: dict[str, Any], error: TypeError) -> InvalidArguments:
        """Python's own words; for a name that is not there, with the one that was probably meant."""
        unknown = next((name for name in kwargs if name not in self.names), None)
        near = [] if unknown is None else difflib.get_close_matches(unknown, self.names, n=1)
        return InvalidArguments(self.name, str(error), parameter=unknown, suggestion=near[0] if near else None)

    def decode_input(self, text: str | None) -> dict[str, Any]:
        """Return the stored input as the handler's arguments, of the annotated types."""
        stored, bound = self._bound(text)
        arguments = {}
        for name, content in bound.items():
            kind = self.types.get(name, Any)
            try:
                arguments[name] = from_parsed(content, kind, tagged=stored.tagged)
            except SerializationError as error:
                if kind is Any:
                    raise
                # Reading has changed what it read: once more, for the error.
                value = decode(text_of(self._bound(text)[1][name]))
                raise InvalidArguments(self.name, f"{name!r} {misfit(kind, value, error)}", parameter=name) from error
        return arguments

    def _bound(self, text: str | None) -> tuple[Stored, dict[str, Any]]:
        stored = read(text or "null")
        return stored, bind(self, stored.form, stored.content, strict=False)


def misfit(kind: Any, value: Any, error: SerializationError) -> str:
    """`must be an int, got 'lots'`; where the fault is further inside, what it is there."""
    if error.path == "$" and isinstance(kind, type) and error.reason.startswith("Expected"):
        return f"must be {with_article(kind.__name__)}, got {shown(value)}"
    where = "" if error.path == "$" else f"{error.path}: "
    return f"is not {named_type(kind)}: {where}{error.reason}"


def named_type(kind: Any) -> str:
    return with_article(kind.__name__) if isinstance(kind, type) else str(kind).replace("typing.", "")


def with_article(name: str) -> str:
    has_vowel = name[:1].lower() in set("aeiou") and not name.startswith("UUID")
    return f"{'an' if has_vowel else 'a'} {name}"


def _check_nameable(workflow: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise ConfigError(
            f"workflow {workflow!r} takes {parameter}, but arguments are stored by name",
            hint="give each one a parameter, or take a list or a dict",
        )


def _callable_by_name(
    function: Callable[..., Any], parameters: tuple[inspect.Parameter, ...], context: str | None
) -> Callable[..., Any]:
    """The function itself if `function(context, **arguments)` calls it; else one that puts them where they belong."""
    by_position = [each for each in parameters if each.kind is inspect.Parameter.POSITIONAL_ONLY]
    comes_first = context is None or (
        parameters[0].name == context and parameters[0].kind is not inspect.Parameter.KEYWORD_ONLY
    )
    if comes_first and all(each.name == context for each in by_position):
        return function
    return _Placing(function, by_position, context)


class _Placing:
    """A function whose context is not its first parameter, or that takes arguments by position only."""

    def __init__(
        self, function: Callable[..., Any], by_position: list[inspect.Parameter], context: str | None
    ) -> None:
        functools.update_wrapper(self, function)
        # By these a recorded error finds its class again.
        self.__globals__ = getattr(inspect.unwrap(function), "__globals__", {})
        self._function = function
        self._by_position = by_position
        self._context = context

    def __call__(self, *context: Any, **arguments: Any) -> Any:
        if self._context is not None:
            arguments[self._context] = context[0]
        # What was not given has a default: binding has seen to it.
        args = [arguments.pop(each.name, each.default) for each in self._by_position]
        return self._function(*args, **arguments)


class StepShape(NamedTuple):
    """What a step's function is, and what it says that it returns."""

    is_async: bool
    returns: Any


_PLAIN = StepShape(is_async=False, returns=Any)
_REMEMBERED = "__pgqrs_shape__"


def shape_of(function: Callable[..., Any]) -> StepShape:
    """Remembered for each function: reading annotations takes longer than all else that a step needs."""
    if type(function) is not FunctionType:
        return StepShape(_is_async(function), return_type(function))
    remembered: tuple[int, StepShape] = function.__dict__.get(_REMEMBERED, (0, _PLAIN))
    owner, known = remembered
    # Whoever wraps a function copies its attributes, too: what is remembered names whose it is.
    if owner != id(function):
        known = StepShape(inspect.iscoroutinefunction(function), return_type(function))
        function.__dict__[_REMEMBERED] = (id(function), known)
    return known


def _is_async(function: Callable[..., Any]) -> bool:
    """True for an async function, and for an object that is called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - what it is matters


def return_type(function: Callable[..., Any]) -> Any:
    """What a step's function says that it returns; Any when it does not say."""
    hint = types_of(function).get("return", Any)
    # A function that only ever raises (a pause) says so; what it is resumed with may be anything.
    return Any if hint in (type(None), NoReturn, Never) else hint
