"""The same API for programs without an event loop (scripts, Flask, Django): one generic wrapper, no twins.

    from pgqrs import blocking

    with blocking.connect("sqlite:///app.db") as store:
        store.create_queue("tasks")
        store.producer("tasks").enqueue({"n": 1})
        run_id = blocking.workflow("zip_files").trigger({"bucket": "b"}).execute(store)

Everything happens on one event loop in a thread of its own. Objects that the API gives are wrapped in turn; what they
return is given when it is there, and `async for` is `for`. A forked child (gunicorn --preload, multiprocessing)
connects again: stores of its parent refuse to work there.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

from pgqrs.api.connect import connect as _connect
from pgqrs.api.connect import connect_with as _connect_with
from pgqrs.api.consumer import Consumer as _Consumer
from pgqrs.api.dispatcher import Dispatcher as _Dispatcher
from pgqrs.api.dispatcher import dispatcher as _dispatcher
from pgqrs.api.message import Message as _Message
from pgqrs.api.operations.admin import Admin as _Admin
from pgqrs.api.operations.admin import admin as _admin
from pgqrs.api.operations.metrics import workflow_metrics as _workflow_metrics
from pgqrs.api.operations.outbox_admin import OutboxAdmin as _OutboxAdmin
from pgqrs.api.operations.promote import promote as _promote
from pgqrs.api.producer import Producer as _Producer
from pgqrs.api.retention import Retention as _Retention
from pgqrs.api.retention import retention as _retention
from pgqrs.api.run import Run as _Run
from pgqrs.api.schedules import Schedules as _Schedules
from pgqrs.api.schedules import schedules as _schedules
from pgqrs.api.steps import step
from pgqrs.api.store import Store as _Store
from pgqrs.api.trigger import Trigger as _Trigger
from pgqrs.api.using import using
from pgqrs.api.worker import Worker as _Worker
from pgqrs.api.worker import WorkerBuilder as _WorkerBuilder
from pgqrs.api.worker import consumer as _consumer
from pgqrs.api.worker import poll_all as _poll_all
from pgqrs.api.worker import worker as _worker
from pgqrs.api.workflow import Workflow as _Workflow
from pgqrs.api.workflow import discover_workflows
from pgqrs.api.workflow import workflow as _workflow
from pgqrs.api.workflow import workflow as workflow_decorator
from pgqrs.api.workflow_verbs import RunPage
from pgqrs.config import Config
from pgqrs.engine.outbox.publishers.signature import verify_signature
from pgqrs.errors import ConfigError

_OURS = (
    _Store,
    _Producer,
    _Consumer,
    _Message,
    _Admin,
    _Run,
    _Worker,
    _WorkerBuilder,
    _Workflow,
    _Trigger,
    _Dispatcher,
    _OutboxAdmin,
    _Retention,
    _Schedules,
)


class _Portal:
    """The event loop of all blocking stores of this process, in a thread that starts when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        # Kept, so that they are not collected: their selectors are the parent's.
        self._parents_loops: list[asyncio.AbstractEventLoop | None] = []

    def forget(self) -> None:
        """In a forked child: the loop's thread is not there, and the lock may be held for ever."""
        self._parents_loops.append(self._loop)
        self._loop, self._lock = None, threading.Lock()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        loop = self._started()
        if asyncio._get_running_loop() is loop:  # noqa: SLF001 - as public, but None where there is no loop
            # To wait here would stop the loop that is to do the work.
            work.close()
            raise ConfigError(
                "pgqrs.blocking was called in async code, on the event loop that carries out its calls",
                hint="use `async with pgqrs.connect() as store` there, or make the function plain",
            )
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="pgqrs-blocking", daemon=True).start()
            return self._loop


_portal = _Portal()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_portal.forget)


class Blocking:
    """An object of the API whose verbs block."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return _blocking(value) if inspect.ismethod(value) else _wrapped(value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return _iterated(self._target.__aiter__())

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def __class_getitem__(cls, _: Any) -> type[Self]:
        """`blocking.Run[Receipt]` in an annotation."""
        return cls


def connect(dsn: str | None = None, **settings: Any) -> Any:
    """As `pgqrs.connect`, for plain code."""

    async def opened() -> _Store:
        return await _connect(dsn, **settings)

    return Blocking(_portal.run(opened()))


def connect_with(config: Config, **options: Any) -> Any:
    """As `pgqrs.connect_with`, for plain code."""

    async def opened() -> _Store:
        return await _connect_with(config, **options)

    return Blocking(_portal.run(opened()))


def _blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The call happens on the loop's thread, whether or not there is something to await."""

    def call(*args: Any, **kwargs: Any) -> Any:
        async def there() -> Any:
            result = function(*map(_unwrapped, args), **{k: _unwrapped(v) for k, v in kwargs.items()})
            return await result if inspect.isawaitable(result) else result

        return _wrapped(_portal.run(there()))

    return call


def _wrapped(value: Any) -> Any:
    if isinstance(value, _OURS):
        return Blocking(value)
    if isinstance(value, AsyncIterator):
        return _iterated(value)
    if isinstance(value, list) and value and isinstance(value[0], _OURS):
        # A copy: a page keeps its cursor.
        wrapped = copy.copy(value)
        wrapped[:] = [Blocking(each) for each in value]
        return wrapped
    return value


def _unwrapped(value: Any) -> Any:
    return value._target if isinstance(value, Blocking) else value  # noqa: SLF001 - our own


def _iterated(items: AsyncIterator[Any]) -> Iterator[Any]:
    async def following() -> tuple[bool, Any]:
        try:
            return True, await anext(items)
        except StopAsyncIteration:
            return False, None

    async def close() -> None:
        closing = getattr(items, "aclose", None)
        if closing is not None:
            await closing()

    try:
        while True:
            more, item = _portal.run(following())
            if not more:
                return
            yield _wrapped(item)
    finally:
        _portal.run(close())


admin = _blocking(_admin)
retention = _blocking(_retention)
workflow = _blocking(_workflow)
consumer = _blocking(_consumer)
schedules = _blocking(_schedules)
worker = _blocking(_worker)
poll_all = _blocking(_poll_all)
dispatcher = _blocking(_dispatcher)
workflow_metrics = _blocking(_workflow_metrics)
promote = _blocking(_promote)

# The classes of the stub, blocking.pyi, for annotations that are read at run time: one class does for all of them.
Store = Blocking
Producer = Blocking
Consumer = Blocking
Message = Blocking
Admin = Blocking
Run = Blocking
Worker = Blocking
WorkerBuilder = Blocking
Workflow = Blocking
Trigger = Blocking
Dispatcher = Blocking
OutboxAdmin = Blocking
Retention = Blocking
Schedules = Blocking
DecoratedWorkflow = Blocking

# What needs no event loop is the same here: decorators, and `using` with a connection that is not awaited.
__all__ = [
    "Admin",
    "Blocking",
    "Consumer",
    "DecoratedWorkflow",
    "Dispatcher",
    "Message",
    "OutboxAdmin",
    "Producer",
    "Retention",
    "Run",
    "RunPage",
    "Schedules",
    "Store",
    "Trigger",
    "Worker",
    "WorkerBuilder",
    "Workflow",
    "admin",
    "connect",
    "connect_with",
    "consumer",
    "discover_workflows",
    "dispatcher",
    "poll_all",
    "promote",
    "retention",
    "schedules",
    "step",
    "using",
    "verify_signature",
    "worker",
    "workflow",
    "workflow_decorator",
    "workflow_metrics",
]
