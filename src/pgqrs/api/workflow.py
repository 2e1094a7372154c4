"""Workflows: one noun that is definition, decorator and trigger."""

# Overloads overlap on purpose: the first that fits is the one.
# mypy: disable-error-code="overload-overlap"
from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, Self, Unpack, overload

from pgqrs.api.arguments import check_function
from pgqrs.api.schedules import check_declared
from pgqrs.api.steps import AnyValue
from pgqrs.api.trigger import OPTION_NAMES, Trigger, TriggerOptions, unknown_argument
from pgqrs.api.workflow_options import DecoratorOptions, checked_options
from pgqrs.api.workflow_verbs import WorkflowVerbs
from pgqrs.engine.definitions.binding import Signature
from pgqrs.engine.definitions.handlers import Handler, WorkflowOptions, served
from pgqrs.engine.definitions.handlers import decorated as _known
from pgqrs.engine.definitions.signature import declare
from pgqrs.errors import ConfigError
from pgqrs.serialization import Encoded
from pgqrs.text.names import checked_name
from pgqrs.types import Result_co, Returning

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from pgqrs.api.inline import RunContext
    from pgqrs.api.store import Store
    from pgqrs.engine.ctx.context import Context
    from pgqrs.engine.ctx.sync_context import SyncContext

    P = ParamSpec("P", default=...)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")

R = TypeVar("R")
W = TypeVar("W", bound="Workflow[Any]")


@overload
def workflow(name: W) -> W: ...
@overload
def workflow(name: str, **options: Unpack[DecoratorOptions]) -> Workflow[Any]: ...
@overload
def workflow(name: None = None, **options: Unpack[DecoratorOptions]) -> Decorating: ...
@overload
def workflow(name: Callable[Concatenate[AnyValue, P], Awaitable[R]]) -> AsyncWorkflow[..., R]: ...
@overload
def workflow(name: Callable[Concatenate[Context, P], Awaitable[R]]) -> AsyncWorkflow[P, R]: ...
@overload
def workflow(name: Callable[P, Awaitable[R]]) -> AsyncWorkflow[P, R]: ...
@overload
def workflow(name: Callable[Concatenate[AnyValue, P], R]) -> PlainWorkflow[..., R]: ...
@overload
def workflow(name: Callable[Concatenate[SyncContext, P], R]) -> PlainWorkflow[P, R]: ...
@overload
def workflow(name: Callable[Concatenate[Context, P], R]) -> PlainWorkflow[P, R]: ...
@overload
def workflow(name: Callable[P, R]) -> PlainWorkflow[P, R]: ...
def workflow(name: Any = None, **options: Unpack[DecoratorOptions]) -> Any:
    """`workflow("zip_files")` is the noun; `@workflow`, `@workflow(name="zip_files")` makes a function one."""
    if isinstance(name, Workflow) and not options:
        return name
    if callable(name):
        return _decorated(name, checked_name("workflow", name.__name__), options=WorkflowOptions())
    checked = checked_options(name, **options)
    if name is None:
        return lambda function: _decorated(function, checked_name("workflow", function.__name__), options=checked)
    return Workflow(name, options=checked)


class Decorating(Protocol):
    """What `@workflow(retry=...)` is before it has its function."""

    @overload
    def __call__(self, function: Callable[Concatenate[AnyValue, P], Awaitable[R]], /) -> AsyncWorkflow[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> AsyncWorkflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> AsyncWorkflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[AnyValue, P], R], /) -> PlainWorkflow[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R], /) -> PlainWorkflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> PlainWorkflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainWorkflow[P, R]: ...
    def __call__(self, function: Any, /) -> Any: ...


class Workflow(WorkflowVerbs[Result_co], Returning[Result_co]):
    """A workflow by its name, with every verb. Called with a function it is a decorator: `@workflow("zip_files")`."""

    def __init__(self, name: str, *, options: WorkflowOptions | None = None) -> None:
        self.name: str = checked_name("workflow", name)
        self._options = options or WorkflowOptions()

    @overload
    def __call__(self, function: Callable[Concatenate[AnyValue, P], Awaitable[R]], /) -> AsyncWorkflow[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> AsyncWorkflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> AsyncWorkflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[AnyValue, P], R], /) -> PlainWorkflow[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R], /) -> PlainWorkflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> PlainWorkflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainWorkflow[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        return _decorated(function, self.name, options=self._options)

    @property
    def handler(self) -> Handler | None:
        return _known.get(self.name) or served.get(self.name)

    @property
    def _returns(self) -> Any:
        return self.handler.returns if self.handler else Any

    @property
    def signature(self) -> Signature | None:
        """What it takes, where its code is at hand: a workflow that is only named may be another program's."""
        return None

    def trigger(
        self,
        params: Any = None,
        *,
        idempotency_key: str | None = None,
        require_worker: bool | None = None,
        **options: Unpack[TriggerOptions],
    ) -> Trigger[Result_co]:
        """A run about to be: `.execute(store)` starts it and gives its id.

        With an idempotency key that a run has already, that run's id is given, or IdempotencyConflict raised if its
        input is another. Keys are one space for all workflows; deleting a run frees its key.
        """
        keys = () if idempotency_key is None else (idempotency_key,)
        return Trigger(self, [params], keys, many=False, require_worker=require_worker, **options)

    def trigger_many(
        self,
        params: Iterable[Any],
        *,
        idempotency_keys: Iterable[str] = (),
        require_worker: bool | None = None,
        **options: Unpack[TriggerOptions],
    ) -> Trigger[Result_co, list[int]]:
        """One run per item, all of them or none: `.execute(store)` gives their ids in order. Keys: one for each."""
        if isinstance(idempotency_keys, str) or not isinstance(idempotency_keys, Iterable):
            raise ConfigError(f"idempotency_keys must be a list with one key for each run, not {idempotency_keys!r}")
        keys = tuple(idempotency_keys)
        return Trigger(self, list(params), keys, many=True, require_worker=require_worker, **options)

    def __repr__(self) -> str:
        return f"<Workflow {self.name}>"


class DecoratedWorkflow(Workflow[Result_co], Generic[P, Result_co]):
    """A function that is a workflow: call it to run it here, `.trigger(...)` to queue it."""

    def __init__(self, function: Callable[..., Any], name: str, *, options: WorkflowOptions) -> None:
        super().__init__(name, options=options)
        check_function("workflow", self.name, function)
        functools.update_wrapper(self, function)
        self._handler = Handler.of(self.name, function, options=options)
        if options.schedule is not None:
            check_declared(self.name, options.schedule, handler=self._handler)
        declare(self.name, self, function)
        _known[self.name] = self._handler

    @property
    def __pgqrs_handler__(self) -> Handler:
        return self._handler

    @property
    def handler(self) -> Handler:
        return self._handler

    @property
    def signature(self) -> Signature:
        return self._handler

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it durably, in this process: in the run that a context of `admin.create_workflow` names, else in a new
        one. Inside another workflow it is a child run instead, which any worker executes.
        """
        from pgqrs.api.inline import call_here  # noqa: PLC0415 - it needs the whole engine, and this module

        return call_here(self, args, kwargs)

    def run(self, *args: Any, key: str | None = None, store: Store | None = None, **kwargs: Any) -> Any:
        """As a call, in the one run that has this idempotency key; awaited for an async workflow.

        An unfinished or failed run continues after its last completed step. While another process executes it, this
        call waits for it. A finished run is not executed again: its recorded result is returned. Another input than
        the run's raises IdempotencyConflict. Without `store` it is the one that PGQRS_DSN names.
        """
        from pgqrs.api.inline import run_here  # noqa: PLC0415 - as above

        names = {parameter.name for parameter in self._handler.parameters}
        for name in names & {"key", "store"}:
            raise ConfigError(
                f"workflow {self.name!r} has a parameter {name!r}, which is also an option of run", hint="rename it"
            )
        return run_here(self, args, kwargs, key=key, store=store)

    # Beside a ParamSpec there is no room for keywords: where an option is given, the arguments are checked by the
    # call itself alone. One overload for each option, so that a misspelt argument is not taken for one.
    @overload  # type: ignore[override]
    def trigger(self, *args: P.args, **kwargs: P.kwargs) -> Trigger[Result_co]: ...
    @overload
    def trigger(
        self,
        *args: Any,
        idempotency_key: str | None,
        priority: int = ...,
        delay: float | timedelta = ...,
        run_at: datetime | None = ...,
        max_attempts: int | None = ...,
        attributes: dict[str, Any] | None = ...,
        require_worker: bool | None = ...,
        **kwargs: Any,
    ) -> Trigger[Result_co]: ...
    @overload
    def trigger(
        self,
        *args: Any,
        idempotency_key: str | None = ...,
        priority: int,
        delay: float | timedelta = ...,
        run_at: datetime | None = ...,
        max_attempts: int | None = ...,
        attributes: dict[str, Any] | None = ...,
        require_worker: bool | None = ...,
        **kwargs: Any,
    ) -> Trigger[Result_co]: ...
    @overload
    def trigger(
        self,
        *args: Any,
        idempotency_key: str | None = ...,
        priority: int = ...,
        delay: float | timedelta,
        run_at: datetime | None = ...,
        max_attempts: int | None = ...,
        attributes: dict[str, Any] | None = ...,
        require_worker: bool | None = ...,
        **kwargs: Any,
    ) -> Trigger[Result_co]: ...
    @overload
    def trigger(
        self,
        *args: Any,
        idempotency_key: str | None = ...,
        priority: int = ...,
        delay: float | timedelta = ...,
        run_at: datetime | None,
        max_attempts: int | None = ...,
        attributes: dict[str, Any] | None = ...,
        require_worker: bool | None = ...,
        **kwargs: Any,
    ) -> Trigger[Result_co]: ...
    @overload
    def trigger(
        self,
        *args: Any,
        idempotency_key: str | None = ...,
        priority: int = ...,
        delay: float | timedelta = ...,
        run_at: datetime | None = ...,
        max_attempts: int | None,
        attributes: dict[str, Any] | None = ...,
        require_worker: bool | None = ...,
        **kwargs: Any,
    ) -> Trigger[Result_co]: ...
    @overload
    def trigger(
        self,
        *args: Any,
        idempotency_key: str | None = ...,
        priority: int = ...,
        delay: float | timedelta = ...,
        run_at: datetime | None = ...,
        max_attempts: int | None = ...,
        attributes: dict[str, Any] | None,
        require_worker: bool | None = ...,
        **kwargs: Any,
    ) -> Trigger[Result_co]: ...
    @overload
    def trigger(
        self,
        *args: Any,
        idempotency_key: str | None = ...,
        priority: int = ...,
        delay: float | timedelta = ...,
        run_at: datetime | None = ...,
        max_attempts: int | None = ...,
        attributes: dict[str, Any] | None = ...,
        require_worker: bool | None,
        **kwargs: Any,
    ) -> Trigger[Result_co]: ...
    def trigger(self, *args: Any, **options: Any) -> Trigger[Result_co]:
        """The handler's own arguments, then the options of `Workflow.trigger`."""
        names = {parameter.name for parameter in self._handler.parameters}
        for name in options.keys() & names & OPTION_NAMES:
            raise ConfigError(
                f"workflow {self.name!r} has a parameter {name!r}, which is also an option of trigger",
                hint="give it "
                f"without its name, or say pgqrs.workflow({self.name!r}).trigger(params, {name}=...) for the option",
            )
        given = {name: options.pop(name) for name in list(options) if name in names}
        if unknown := [name for name in options if name not in OPTION_NAMES]:
            raise unknown_argument(self._handler, unknown[0])
        text = self._handler.encode_input(args, given, max_bytes=2**31)
        return Workflow.trigger(self, Encoded(text), **options)

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self


class AsyncWorkflow(DecoratedWorkflow[P, Result_co]):
    """A decorated `async def`: awaited where it is called, but not with the context of a plain workflow."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        def __call__(
            self, ctx: Context | RunContext, /, *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[object, None, Result_co]: ...
        @overload
        def __call__(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> Result_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, Result_co]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]

        @overload  # type: ignore[override]
        def run(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, Result_co]: ...
        @overload
        def run(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> Result_co: ...
        @overload
        def run(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, Result_co]: ...
        @overload
        def run(
            self, *args: Any, key: str | None, store: Store | None = ..., **kwargs: Any
        ) -> Coroutine[object, None, Result_co]: ...
        @overload
        def run(
            self, *args: Any, key: str | None = ..., store: Store | None, **kwargs: Any
        ) -> Coroutine[object, None, Result_co]: ...
        def run(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]


class PlainWorkflow(DecoratedWorkflow[P, Result_co]):
    """A decorated plain `def`: called without `await`, but awaited with the context of an async workflow."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        def __call__(
            self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[object, None, Result_co]: ...
        @overload
        def __call__(self, ctx: SyncContext | RunContext, /, *args: P.args, **kwargs: P.kwargs) -> Result_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Result_co: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]

        @overload  # type: ignore[override]
        def run(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, Result_co]: ...
        @overload
        def run(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> Result_co: ...
        @overload
        def run(self, *args: P.args, **kwargs: P.kwargs) -> Result_co: ...
        @overload
        def run(self, *args: Any, key: str | None, store: Store | None = ..., **kwargs: Any) -> Result_co: ...
        @overload
        def run(self, *args: Any, key: str | None = ..., store: Store | None, **kwargs: Any) -> Result_co: ...
        def run(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]


def _decorated(function: Callable[..., Any], name: str, *, options: WorkflowOptions) -> DecoratedWorkflow[..., Any]:
    kind = AsyncWorkflow if inspect.iscoroutinefunction(inspect.unwrap(function)) else PlainWorkflow
    return kind(function, name, options=options)


def discover_workflows(module: ModuleType | None = None) -> dict[str, Any]:
    """The decorated workflows of a module, by name; without one, all that this process knows."""
    if module is None:
        return dict(_known)
    found = (value for value in vars(module).values() if isinstance(value, DecoratedWorkflow))
    return {each.name: each for each in found}
