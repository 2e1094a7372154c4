"""Workers: handlers bound to workflows, polling until they are stopped."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from pgqrs.api.arguments import check_function, checked_whole
from pgqrs.api.schedules import declare
from pgqrs.config import Config
from pgqrs.db import migrations
from pgqrs.db.driver import Driver
from pgqrs.db.hints import CATALOGUE
from pgqrs.db.tables import workers, workflows
from pgqrs.engine import threads
from pgqrs.engine.definitions.handlers import Handler, served
from pgqrs.engine.definitions.input_schema import input_schema
from pgqrs.engine.definitions.signature import SourceLocation, two_of_a_name
from pgqrs.engine.runs.served import ServedWorkflows
from pgqrs.engine.runs.worker import WorkerLoop
from pgqrs.errors import ConfigError, ConnectionFailed, SchemaMismatch, SchemaNotInstalled
from pgqrs.process_signals import STOP, on_signals
from pgqrs.shutdown_budgets import GRACE_SECONDS
from pgqrs.text.names import checked_name

if TYPE_CHECKING:
    from typing import TypeAlias

    from pgqrs.api.store import Store
    from pgqrs.api.workflow import DecoratedWorkflow

    Served: TypeAlias = (
        ModuleType | Mapping[str, object] | DecoratedWorkflow[..., Any] | Sequence[DecoratedWorkflow[..., Any]]
    )

log: logging.Logger = logging.getLogger("pgqrs.worker")

# A call goes on trying for longer than that, but whoever probes has no patience.
_PROBE_SECONDS = 3.0
# One program, another role by its environment alone.
PREFIXES_VARIABLE = "WORKER_TYPE_PREFIXES"
DEFAULT_PREFIX = "default."


def consumer(name: str, port: int, workflow: str) -> WorkerBuilder:
    """A worker for one workflow: `await consumer("worker-1", 8080, "zip_files").handler(fn).create(store)`."""
    return WorkerBuilder(name, port, [workflow])


def worker(
    name: str, *, prefixes: Iterable[str] | None = None, port: int = 0, concurrency: int = 10
) -> WorkerBuilder:
    """A worker for many workflows: `await worker("w").workflows(module).create(store)`.

    With prefixes (or `WORKER_TYPE_PREFIXES=billing.,media.`) it serves every workflow whose name begins with one of
    them, also those that are made later; an empty list stands for `default.`. Without, those whose code it is given.
    """
    return WorkerBuilder(name, port, [], prefixes=_prefixes(prefixes)).concurrency(concurrency)


def _prefixes(given: Iterable[str] | None) -> list[str]:
    if isinstance(given, str):
        raise ConfigError(f"prefixes must be a list, such as [{given!r}]")
    if given is None:
        text = os.environ.get(PREFIXES_VARIABLE)
        if text is None:
            return []
        given = [part.strip() for part in text.split(",") if part.strip()]
    return [checked_name("prefix", each) for each in given] or [DEFAULT_PREFIX]


async def poll_all(*polled: Worker) -> None:
    """Several workers in one process; when one ends, for whatever reason, all are stopped."""
    tasks = [asyncio.ensure_future(each.poll_forever()) for each in polled]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in polled:
            each.stop()
        await asyncio.gather(*tasks)


class WorkerBuilder:
    """What a worker shall be, until `create` makes it."""

    def __init__(self, name: str, port: int, names: list[str], *, prefixes: Sequence[str] = ()) -> None:
        self._prefixes = prefixes
        self._name = checked_name("worker", name)
        self._port = checked_whole("port", port, least=0, most=65535)
        self._handlers: dict[str, Handler | None] = {checked_name("workflow", each): None for each in names}
        # A workflow that was only named must be there; one whose code is here is made.
        self._creates: set[str] = set()
        self._concurrency = 10
        self._grace_seconds = GRACE_SECONDS

    def handler(self, function: Callable[..., Any]) -> Self:
        for name in self._handlers:
            self._handlers[name] = served[name] = _handler_of(name, function)
        return self

    def workflows(self, given: Served) -> Self:
        """A module with decorated workflows, a list of such workflows, or a mapping from names to handlers."""
        found = _handlers_in(given)
        for name, handler in found.items():
            known = self._handlers.get(name)
            if known is not None and not SourceLocation.of(known.function).is_same(
                SourceLocation.of(handler.function)
            ):
                raise two_of_a_name(name, SourceLocation.of(known.function), SourceLocation.of(handler.function))
        self._creates |= set(found)
        self._handlers |= found
        return self

    def concurrency(self, count: int) -> Self:
        self._concurrency = checked_whole("concurrency", count, least=1, most=10_000)
        return self

    def grace(self, seconds: float) -> Self:
        """How long `stop` lets running handlers go on before they are handed back."""
        self._grace_seconds = seconds
        return self

    async def create(self, store: Store) -> Worker:
        """Registers the worker. What was given with `.workflows(...)` is created if it does not exist yet."""
        db = await store.ready()
        if not self._handlers:
            raise ConfigError(
                f"worker {self._name!r} has nothing to do", hint="give it .workflows(module_or_mapping)"
            )
        handlers = self._bound()
        found = await _define(db, store.config, handlers, creates=self._creates)
        store.forget_workflows()
        worker_id = await workers.register(
            db,
            queue_id=found[0].queue_id if len(found) == 1 and not self._prefixes else None,
            name=self._name,
            port=self._port,
            info={
                "pid": os.getpid(),
                "handlers": sorted(handlers),
                "prefixes": list(self._prefixes),
                "slots": self._concurrency,
            },
        )
        service = ServedWorkflows(db, store.config, handlers=handlers, found=found, prefixes=self._prefixes)
        await service.refresh()
        loop = WorkerLoop(
            db,
            store.config,
            worker_id=worker_id,
            service=service,
            concurrency=self._concurrency,
            grace_seconds=self._grace_seconds,
        )
        return Worker(self._name, loop, store)

    def _bound(self) -> dict[str, Handler]:
        """The handlers of what is to be served; with prefixes, code for other workflows is left aside."""
        bound = {}
        for name, handler in self._handlers.items():
            if handler is None:
                raise ConfigError(
                    f"the worker for workflow {name!r} has no handler", hint="give it one with .handler(fn)"
                )
            if _is_served(name, self._prefixes):
                bound[name] = handler
        if not bound:
            raise ConfigError(
                f"worker {self._name!r} has no code for anything that begins with {', '.join(self._prefixes)}; "
                f"it has {', '.join(sorted(self._handlers))}"
            )
        if left := sorted(self._handlers.keys() - bound.keys()):
            log.info("worker %s leaves %s to others: not among its prefixes", self._name, ", ".join(left))
        return bound


def _is_served(name: str, prefixes: Sequence[str]) -> bool:
    return not prefixes or name.startswith(tuple(prefixes))


async def _define(
    db: Driver, config: Config, handlers: Mapping[str, Handler], *, creates: Container[str]
) -> list[workflows.WorkflowRow]:
    """The workflows of the handlers, with what their code says of dead letters, schedules and what they take."""
    found = [await (workflows.create(db, name) if name in creates else workflows.get(db, name)) for name in handlers]
    for handler in handlers.values():
        if handler.options.dead_letter is not None:
            await workflows.set_dead_letter(db, handler.name, handler.options.dead_letter)
        await workflows.set_input_schema(db, handler.name, input_schema(handler))
    await declare(db, config, handlers.values())
    db.hints.announce([CATALOGUE])
    return found


def _handlers_in(given: Any) -> dict[str, Handler]:
    """Of a module with decorated workflows, of such workflows themselves, or a mapping from names to handlers."""
    from pgqrs.api.workflow import DecoratedWorkflow, discover_workflows  # noqa: PLC0415 - they import each other's

    several = [given] if isinstance(given, DecoratedWorkflow) else given
    found: Mapping[str, Any]
    if isinstance(given, Mapping):
        found = given
    elif isinstance(several, list | tuple) and all(isinstance(each, DecoratedWorkflow) for each in several):
        found = {each.name: each for each in several}
    elif given is None or hasattr(given, "__dict__"):
        # A module, or what stands for one.
        found = discover_workflows(given)
    else:
        raise ConfigError(
            f"workflows(...) takes a module, decorated workflows or a mapping, not {given!r}",
            hint="write workflows(app), workflows([order, refund]) or workflows({'order': handler})",
        )
    if not found:
        raise ConfigError(f"there is no decorated workflow in {given!r}")
    return {name: _handler_of(checked_name("workflow", name), function) for name, function in found.items()}


def _handler_of(name: str, function: Any) -> Handler:
    check_function("workflow", name, function)
    return Handler.of(name, function)


class Worker:
    """A registered worker."""

    def __init__(self, name: str, loop: WorkerLoop, store: Store) -> None:
        self.name: str = name
        self._store = store
        self.worker_id: int = loop.worker_id
        self._loop = loop

    async def poll_forever(self, *, signals: bool = False) -> None:
        """Leases and executes runs until `stop`; then drains, and hands back what does not finish in time.

        With `signals`, SIGTERM, SIGINT and SIGHUP stop it; a second one hands back at once.
        """
        with on_signals(self._on_signal, *(STOP if signals else ())):
            await self._loop.run()

    @property
    def leaves_code_behind(self) -> bool:
        """True when code of a handler still runs although it was cancelled: it ends with the process only."""
        return self._loop.has_stuck_handlers or threads.are_busy()

    def _on_signal(self) -> None:
        if self._loop.is_stopping:
            self._loop.hand_back()
        else:
            self._loop.stop()

    def hand_back(self) -> None:
        """Stops at once: what is running is handed back, its attempt not counted."""
        self._loop.hand_back()

    @property
    def seconds_since_claim(self) -> float:
        """For a liveness probe: how long ago it asked for runs and was answered; 0 while it has as many as it may.

        A healthy idle worker asks at least every ten poll intervals. Heartbeats prove less: they have a thread of
        their own, which goes on when the worker does not.
        """
        return self._loop.seconds_since_claim

    async def problems(self) -> list[str]:
        """For a readiness probe: why not to rely on it just now; empty when all is well. Asks the database."""
        found = ["draining: it was told to stop"] if self._loop.is_stopping else []
        failing = self._loop.seconds_without_heartbeat
        if failing:
            found.append(f"heartbeats have failed for {failing:.0f} s")
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await migrations.check(self._store.database)
        except (ConnectionFailed, TimeoutError):
            # What exactly is for the log: whoever probes may be anybody.
            found.append("the database does not answer")
        except (SchemaNotInstalled, SchemaMismatch):
            found.append("the tables are not those that this version works with")
        return found

    async def run_until_idle(self) -> None:
        """Executes what is due now and returns when nothing is: for tests and scripts."""
        await self._loop.run_until_idle()

    def stop(self) -> None:
        """No more leases; `poll_forever` returns soon. Idempotent, callable from a signal handler of the loop."""
        self._loop.stop()

    def set_handler(self, function: Callable[..., Any]) -> None:
        """Another handler for the one workflow of this worker, from the next run on."""
        handlers = self._loop.service.handlers
        if len(handlers) != 1:
            raise ConfigError(
                f"worker {self.name!r} serves {len(handlers)} workflows",
                hint="set_handler is for workers of consumer(...)",
            )
        for name in handlers:
            handlers[name] = _handler_of(name, function)

    async def add_workflows(self, given: Served) -> None:
        """More workflows while it runs, given as to `workflows`: their runs are leased from now on."""
        service = self._loop.service
        added = {name: h for name, h in _handlers_in(given).items() if _is_served(name, service.prefixes)}
        db = await self._store.ready()
        service.add(added, await _define(db, self._store.config, added, creates=added))
        self._store.forget_workflows()

    async def close(self) -> None:
        """Signs off a worker that was used with `run_until_idle`."""
        await self._loop.close()

    def __repr__(self) -> str:
        return f"<Worker {self.worker_id} {self.name}>"
