"""Workflows: one noun that is definition, decorator and trigger."""

# Overloads overlap on purpose: the first that fits is the one.
# mypy: disable-error-code="overload-overlap"
from __future__ import annotations

import functools
import inspect
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, Self, TypedDict, Unpack, overload

from pgqrs.api.arguments import check_function, check_texts, checked_run_id, checked_whole, in_order, unknown_option
from pgqrs.api.operations.metrics import workflow_metrics
from pgqrs.api.operations.search import events_of, rows_of, steps_of, wanted_by
from pgqrs.api.run import Run
from pgqrs.api.schedules import check_declared
from pgqrs.api.steps import AnyValue
from pgqrs.api.trigger import OPTION_NAMES, Trigger, TriggerOptions
from pgqrs.db.driver import Driver
from pgqrs.db.hints import OUTBOX
from pgqrs.db.runs import transitions
from pgqrs.db.tables import runs, workflows
from pgqrs.engine.definitions.binding import Signature
from pgqrs.engine.definitions.handlers import Handler, WorkflowOptions, served
from pgqrs.engine.definitions.handlers import decorated as _known
from pgqrs.engine.definitions.signature import declare
from pgqrs.errors import ConfigError, RunNotFound
from pgqrs.reports import WorkflowMetrics
from pgqrs.retry import RetryPolicy, checked_policy
from pgqrs.serialization import Encoded, encode, naming
from pgqrs.text.durations import checked_seconds
from pgqrs.text.names import checked_name, checked_step_name
from pgqrs.types import Event, Result_co, Returning, Step

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
log: logging.Logger = logging.getLogger("pgqrs")


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
    checked = _checked_options(name, **options)
    if name is None:
        return lambda function: _decorated(function, checked_name("workflow", function.__name__), options=checked)
    return Workflow(name, options=checked)


class DecoratorOptions(TypedDict, total=False):
    """`concurrency` is how many runs of it one worker executes at once; `dead_letter` names the workflow that gets a
    run when one of this one's fails."""

    retry: RetryPolicy | None
    lease_seconds: float | timedelta | None
    concurrency: int | None
    dead_letter: str | None
    schedule: str | timedelta | datetime | Mapping[str, Any] | None


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


def _checked_options(
    name: str | None,
    *,
    retry: RetryPolicy | None = None,
    lease_seconds: float | timedelta | None = None,
    concurrency: int | None = None,
    dead_letter: str | None = None,
    schedule: Any = None,
    **unknown: Any,
) -> WorkflowOptions:
    if unknown:
        raise unknown_option("workflow", unknown, ("name", *DecoratorOptions.__annotations__), named_by="name")
    if dead_letter is not None and checked_name("workflow", dead_letter) == name:
        raise ConfigError(f"workflow {name!r} cannot be its own dead letter", hint="name another one")
    if schedule is not None:
        check_declared(name or "it", schedule)
    return WorkflowOptions(
        retry=checked_policy("workflow", retry),
        lease_seconds=None if lease_seconds is None else checked_seconds(lease_seconds, "lease_seconds", least=1),
        concurrency=None if concurrency is None else checked_whole("concurrency", concurrency, least=1, most=10_000),
        dead_letter=dead_letter,
        schedule=schedule,
    )


class Workflow(Returning[Result_co]):
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

    @in_order
    async def get_run(self, run_id: int, store: Store) -> Run[Result_co]:
        row = await runs.get(await store.ready(), checked_run_id(run_id))
        if row.workflow != self.name:
            raise RunNotFound(run_id, workflow=row.workflow)
        return Run(row, store, returns=self.handler.returns if self.handler else Any)

    @in_order
    async def runs(
        self, store: Store, *, limit: int = 50, cursor: str | None = None, **fields: Any
    ) -> RunPage[Result_co]:
        """Newest first; `fields` are those of RunFilter (status, attributes ...); `page.next_cursor` leads on."""
        wanted = wanted_by(None, {**fields, "workflow": self.name})
        rows, next_cursor = await rows_of(store, wanted, limit=limit, cursor=cursor)
        returns = self.handler.returns if self.handler else Any
        page: RunPage[Result_co] = RunPage(Run(row, store, returns=returns) for row in rows)
        page.next_cursor = next_cursor
        return page

    @in_order
    async def events(self, run_id: int, store: Store, *, limit: int = 100, after: int = 0) -> list[Event]:
        """What happened to it, oldest first; the last one's `event_id` as `after` pages on."""
        await self._ours(run_id, store)
        return await events_of(store, run_id, limit=limit, after=after)

    @in_order
    async def metrics(self, store: Store, *, window: timedelta | float = timedelta(hours=1)) -> WorkflowMetrics:
        """Counts, success rate, durations and waits of its runs, and its queue; over the last `window`."""
        return await workflow_metrics(self.name, store, window=window)

    @in_order
    async def steps(self, run_id: int, store: Store) -> list[Step]:
        """What is on record of a run's steps, in the order in which they were recorded."""
        await self._ours(run_id, store)
        return await steps_of(store, run_id)

    @in_order
    async def cancel(self, run_id: int, store: Store, *, reason: str | None = None, actor: str | None = None) -> None:
        """Ends it, and its children; whoever executes it can write nothing from now on. Only `restart` undoes it."""
        db = await self._ours(run_id, store, reason=reason, actor=actor)
        cancelled = await transitions.cancel(db, run_id, reason=reason, actor=actor)
        await self._wake(db, about=cancelled)

    @in_order
    async def pause(self, run_id: int, store: Store, *, reason: str = "resume", actor: str | None = None) -> None:
        db = await self._ours(run_id, store, reason=reason, actor=actor)
        await transitions.pause(db, run_id, reason=reason, actor=actor)
        await self._wake(db, about=[run_id])

    @in_order
    async def resume(
        self, run_id: int, store: Store, *, step: str | None = None, data: Any = None, actor: str | None = None
    ) -> None:
        """A paused run goes on at once; with `step`, `data` becomes what that step returns."""
        text = encode(data, max_bytes=store.config.max_payload_bytes)
        db = await self._ours(run_id, store, step=step, actor=actor)
        await transitions.resume(db, run_id, step_id=step, output=text, actor=actor)
        await self._wake(db)

    @in_order
    async def signal(
        self, run_id: int, store: Store, name: str, payload: Any = None, *, actor: str | None = None
    ) -> None:
        """Sends the run a signal: `ctx.wait_for(name)` gets it, whether it waits already or not."""
        with naming(f"the payload of signal {name!r}"):
            text = encode(payload, max_bytes=store.config.max_payload_bytes)
        db = await self._ours(run_id, store, actor=actor)
        await transitions.signal(db, run_id, name=checked_step_name(name), payload=text, actor=actor)
        await self._wake(db)

    @in_order
    async def restart(self, run_id: int, store: Store, *, actor: str | None = None) -> None:
        """Continue a run that failed, was cancelled or lost its worker: only the steps that made it fail run again.

        Recorded results, errors that the handler caught and the time of a sleep stay as they are. Runs in any other
        state raise InvalidTransition, so of several calls one restarts the run.
        """
        db = await self._ours(run_id, store, actor=actor)
        await transitions.restart(db, run_id, actor=actor, request=uuid.uuid4().hex)
        await self._wake(db, about=[run_id])

    @in_order
    async def retry_children(self, run_id: int, store: Store, *, actor: str | None = None) -> list[int]:
        """Restart a failed run together with the failed or cancelled children that it failed because of.

        Children that failed because of children of their own are healed the same way. Children that have succeeded in
        the meantime are not run again. Returns the ids of the runs that were restarted, this one first.
        """
        db = await self._ours(run_id, store, actor=actor)
        restarted = await transitions.retry_children(db, run_id, actor=actor, request=uuid.uuid4().hex)
        db.hints.announce(await transitions.queues_of(db, restarted))
        await self._wake(db, about=restarted)
        return restarted

    @in_order
    async def reset(
        self, run_id: int, store: Store, *, from_step: str | None = None, actor: str | None = None
    ) -> None:
        """From the start, or from the named step on."""
        db = await self._ours(run_id, store, from_step=from_step, actor=actor)
        await transitions.reset(db, run_id, from_step=from_step, actor=actor)
        await self._wake(db, about=[run_id])

    @in_order
    async def delete(self, run_id: int, store: Store, *, reason: str | None = None, actor: str | None = None) -> None:
        """Out of lists and nobody's to run; its idempotency key is free. Kept until retention removes it.

        Whoever executes it can write nothing from now on; its children go on (`cancel` ends those too).
        """
        db = await self._ours(run_id, store, reason=reason, actor=actor)
        await transitions.delete(db, run_id, reason=reason, actor=actor)
        await self._wake(db, about=[run_id])

    @in_order
    async def restore(self, run_id: int, store: Store, *, actor: str | None = None) -> None:
        """Takes `delete` back; what was under way goes on."""
        db = await self._ours(run_id, store, actor=actor)
        await transitions.restore(db, run_id, actor=actor)
        await self._wake(db)

    async def _ours(self, run_id: int, store: Store, **texts: str | None) -> Driver:
        """The database, if the run is one of this workflow, and the texts can be stored."""
        check_texts(**texts)
        db = await store.ready()
        if (found := await runs.workflow_of(db, checked_run_id(run_id))) != self.name:
            raise RunNotFound(run_id, workflow=found)
        return db

    async def _wake(self, db: Driver, *, about: Iterable[int] = ()) -> None:
        topics = [(await workflows.get(db, self.name)).queue_id, *(-run_id for run_id in about)]
        db.hints.announce([*topics, OUTBOX] if db.audit_policy.published else topics)

    def __repr__(self) -> str:
        return f"<Workflow {self.name}>"


class RunPage(list[Run[Result_co]]):
    """A page of runs."""

    next_cursor: str | None = None


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
        text = self._handler.encode_input(args, given, max_bytes=2**31)
        return Workflow.trigger(self, Encoded(text), **options)

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self


class AsyncWorkflow(DecoratedWorkflow[P, Result_co]):
    """A decorated `async def`: awaited where it is called."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        def __call__(
            self, ctx: Context | SyncContext | RunContext, /, *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[object, None, Result_co]: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, Result_co]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]

        @overload  # type: ignore[override]
        def run(
            self, ctx: Context | SyncContext, /, *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[object, None, Result_co]: ...
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
    """A decorated plain `def`: called without `await`."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        def __call__(
            self, ctx: Context | SyncContext | RunContext, /, *args: P.args, **kwargs: P.kwargs
        ) -> Result_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Result_co: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]

        @overload  # type: ignore[override]
        def run(self, ctx: Context | SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> Result_co: ...
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
