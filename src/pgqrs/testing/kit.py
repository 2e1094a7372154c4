"""The kit of a test: a store with a hand-set clock, a worker that works when it is told to, verbs to play with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from pgqrs.api.connect import Connecting
from pgqrs.api.operations.export import export_run
from pgqrs.api.operations.search import events_of, steps_of
from pgqrs.api.operations.why import is_parked
from pgqrs.api.store import Store
from pgqrs.api.trigger import OPTION_NAMES
from pgqrs.api.worker import Worker, worker
from pgqrs.api.workflow import Workflow, discover_workflows
from pgqrs.clock import EPOCH, ManualClock
from pgqrs.config import Config
from pgqrs.db import stand_ins
from pgqrs.db.driver import Driver
from pgqrs.db.runs.transitions import PUT_AWAY_SECONDS
from pgqrs.db.tables import runs, workflows
from pgqrs.db.views import inspection
from pgqrs.db.views.inspection import LiveRun
from pgqrs.engine.definitions.binding import input_text, storable
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.errors import ConfigError
from pgqrs.serialization import Encoded
from pgqrs.testing import assertions
from pgqrs.testing.handle import RunHandle
from pgqrs.testing.step_hooks import BodyCall, BodyWatcher, Interventions, watched
from pgqrs.text.names import checked_name

_MOST_EVENTS = 1_000
# A kit that skips time gives up here: a workflow that sleeps in an endless loop would never let it end.
_MOST_SKIPS = 1_000
_MOST_SHOWN = 3
Step = str | Callable[..., Any]


class AsyncKit:
    """What the fixture `apgqrs` gives; the fixture `pgqrs` gives the same verbs without `await`.

    Time stands still until `advance`. Nothing runs until `drain`, which executes what is due now and comes back.
    """

    def __init__(self, config: Config | None = None, *, clock: ManualClock | None = None) -> None:
        self.config: Config = config or Config("sqlite://:memory:", schema="public", audit="full")
        self.clock: ManualClock = clock or ManualClock()
        self.interventions: Interventions = Interventions()
        # Nobody kills the worker of a kit; those of `crash_everywhere` are another matter.
        self.is_dead = False
        # How many runs its worker executes at a time.
        self.concurrency = 100
        # True while the kit itself writes: that is nothing that the workflow did.
        self.is_preparing: bool = False
        self._handlers: dict[str, Handler] = {}
        self._handles: list[RunHandle] = []
        self._store: Store | None = None
        self._opening: Future[Store] | None = None
        self._gate = threading.Lock()
        self._worker: Worker | None = None
        # True once the tables are there: a store of the code under test need not make them.
        self.is_installed: bool = False
        # From now on `pgqrs.connect()` without a DSN means this database.
        stand_ins.begin(self)

    # -- the world ---------------------------------------------------------------------------------------

    async def open(self) -> Store:
        """The store; it is connected when it is first needed, on the loop that needs it."""
        with self._gate:
            if self._store is not None:
                return self._store
            # Code under test may ask for it on several loops at the same time: it is one database.
            opening, is_first = self._opening or Future[Store](), self._opening is None
            self._opening = opening
        if not is_first:
            return await asyncio.wrap_future(opening)
        try:
            stand_ins.begin(self)
            self._store = await Connecting(self.config, install=True, clock=self.clock)
        except BaseException as error:
            # A cancellation, too: the other loops must not wait forever.
            opening.set_exception(error)
            raise
        else:
            opening.set_result(self._store)
        finally:
            self._opening = None
        self.is_installed = True
        return self._store

    def settings_for(self, config: Config) -> Config:
        """As `config`, on the database of the kit: what a store is connected with that names none."""
        own = self.config
        return config.with_changes(dsn=own.dsn, schema=own.schema, listen_dsn=own.listen_dsn)

    async def lent(self) -> Driver | None:
        """A database in memory has one connection; to every other one there may be another."""
        is_in_memory = self.config.backend != "postgres" and self.config.path == ":memory:"
        return (await self.open()).database if is_in_memory else None

    @property
    def store(self) -> Store:
        """For all that the kit has no verb for."""
        if self._store is None:
            raise ConfigError("the kit is not connected yet: `await kit.open()` gives its store")
        return self._store

    async def close(self) -> None:
        """Idempotent, and from any loop."""
        stand_ins.end(self)
        await self.disconnect()

    async def disconnect(self) -> None:
        """Let go of the store and the worker; the next verb connects again, and the kit is still the default."""
        self._worker, signing_off = None, self._worker
        if signing_off is not None:
            await signing_off.close()
        self._store, closing = None, self._store
        if closing is not None:
            await closing.close()

    def now(self) -> Any:
        return self.clock.now()

    async def advance(self, seconds: float = 0, **parts: float) -> None:
        """Moves time on: `advance(days=6)`. What falls due is executed by the next `drain`."""
        if timedelta(seconds=seconds, **parts) < timedelta(0):
            raise ConfigError("time does not go back")
        self.clock.advance(seconds, **parts)

    # -- workflows ---------------------------------------------------------------------------------------

    async def serve(self, *given: Any) -> None:
        """Workflows that the kit's worker executes: decorated or plain functions, or a mapping from names to them.

        What is triggered or spawned here is served by itself; say the others, such as those that a schedule starts.
        """
        for each in given:
            if isinstance(each, Mapping):
                for name, function in each.items():
                    await self._serve(Handler.of(checked_name("workflow", name), function))
            else:
                await self._serve(handler_of(each))

    async def met(self, workflow: str) -> None:
        """A handler is about to start a run of it."""
        known = discover_workflows().get(workflow)
        if workflow not in self._handlers and known is not None:
            await self._serve(handler_of(known))

    async def _serve(self, handler: Handler) -> None:
        if self._handlers.get(handler.name) == handler:
            return
        if handler.options.dead_letter is not None:
            await self.met(handler.options.dead_letter)
        self._handlers[handler.name] = handler
        self.is_preparing = True
        try:
            store = await self.open()
            await workflows.create(await store.ready(), handler.name)
            if self._worker is not None:
                await self._worker.add_workflows({handler.name: watched(handler, self)})
        finally:
            self.is_preparing = False

    @property
    def handlers(self) -> dict[str, Handler]:
        return dict(self._handlers)

    async def hire(self, store: Store, watcher: BodyWatcher, name: str = "kit") -> Worker:
        """A worker for all that is served here."""
        served = {each: watched(handler, watcher) for each, handler in self._handlers.items()}
        return await worker(name, concurrency=self.concurrency).workflows(served).create(store)

    def body(self, step: BodyCall) -> Callable[..., Any]:
        """What runs in the place of a step's body."""
        return self.interventions.around(step)

    # -- verbs -------------------------------------------------------------------------------------------

    async def trigger(self, workflow: Any, *args: Any, **kwargs: Any) -> RunHandle:
        """Starts a run: the workflow's own arguments, and the options of `trigger` (`delay`, `priority` ...).

        One mapping alone is bound as `workflow(name).trigger(mapping)` binds it: to the parameters that it names.
        A decorated workflow, a plain function, or the noun of one that was served.
        """
        handler = self._found(workflow)
        await self._serve(handler)
        names = {parameter.name for parameter in handler.parameters}
        options = {name: kwargs.pop(name) for name in list(kwargs) if name in OPTION_NAMES - names}
        store = await self.open()
        text = _input_of(handler, args, kwargs, max_bytes=store.config.max_payload_bytes)
        noun = Workflow(handler.name)
        # The kit's worker comes when it is told to: nobody need be warned that there is none.
        store.remember_workers((await store.workflow(handler.name)).queue_id)
        run_id = await noun.trigger(Encoded(text), **options).execute(store)
        return await self.run(run_id)

    def _found(self, workflow: Any) -> Handler:
        if isinstance(workflow, str | Workflow) and getattr(workflow, "handler", None) is None:
            name = workflow if isinstance(workflow, str) else workflow.name
            if name not in self._handlers:
                raise ConfigError(
                    f"workflow {name!r} has no code here", hint=f"say kit.serve({{{name!r}: handler}}) first"
                )
            return self._handlers[name]
        handler = handler_of(workflow)
        return self._handlers.get(handler.name, handler) if isinstance(workflow, Workflow) else handler

    async def run(self, run_id: int) -> RunHandle:
        """The handle of any run, such as one that your code has triggered by itself."""
        for handle in self._handles:
            if handle.run_id == run_id:
                return handle
        row = await runs.get(await (await self.open()).ready(), run_id)
        handler = self._handlers.get(row.workflow)
        handle = RunHandle(run_id, row.workflow, returns=handler.returns if handler else Any)
        self._handles.append(handle)
        await self.refresh()
        return handle

    async def runs(self, workflow: Any) -> list[RunHandle]:
        """All runs of a workflow, oldest first."""
        store = await self.open()
        name = workflow if isinstance(workflow, str) else _name_of(workflow)
        found = await Workflow(name).runs(store, limit=_MOST_EVENTS)
        return [await self.run(each.run_id) for each in reversed(found)]

    async def drain(self, *, skip_time: bool = False) -> None:
        """Execute what is due now, and all that comes of it.

        With `skip_time` the clock moves to whatever is due next (a retry, a sleep), until every run, children
        included, has ended or waits for the outside.
        """
        __tracebackhide__ = True
        await self._drain_once()
        if not skip_time:
            return
        # The runs that were executed since any run last got further: they wait for the outside, and a worker only
        # looks at them again now and then.
        idle: set[int] = set()
        live = await self._live_runs()
        for _ in range(_MOST_SKIPS):
            if idle.issuperset(run.run_id for run in live):
                return
            # A little more: times are kept in microseconds.
            due = min(run.visible_after for run in live) - self.clock.now()
            self.clock.advance(max(due.total_seconds(), 0) + 0.001)
            idle.update(run.run_id for run in live if run.visible_after <= self.clock.now())
            await self._drain_once()
            before, live = live, await self._live_runs()
            if _picture(before) != _picture(live):
                idle.clear()
        await self._tell_restless(live)

    async def _drain_once(self) -> None:
        if not self._handlers:
            return
        if self._worker is None:
            self._worker = await self.hire(await self.open(), self)
        await self._worker.run_until_idle()
        await self.refresh()

    async def _live_runs(self) -> list[LiveRun]:
        """Return the runs that the kit's worker will lease some day."""
        db = await (await self.open()).ready()
        served = {(await workflows.get(db, name)).queue_id for name in self._handlers}
        put_away = self.clock.now() + timedelta(seconds=PUT_AWAY_SECONDS)
        return [
            run
            for run in await inspection.live_runs(db)
            if run.queue_id in served and run.visible_after < put_away and not is_parked(run)
        ]

    async def _tell_restless(self, live: list[LiveRun]) -> None:
        __tracebackhide__ = True
        shown = [(await self.run(run.run_id)).timeline() for run in live[:_MOST_SHOWN]]
        raise AssertionError(
            f"{len(live)} runs still continue after {_MOST_SKIPS:,} waits; move the clock yourself with `advance`, "
            "or call `drain` again\n" + "\n".join(shown)
        )

    async def refresh(self) -> None:
        """Reads every handle again; the verbs do it by themselves."""
        store = await self.open()
        db = await store.ready()
        for handle in self._handles:
            handle.update(
                await runs.get(db, handle.run_id),
                await steps_of(store, handle.run_id),
                await events_of(store, handle.run_id, limit=_MOST_EVENTS),
            )

    async def signal(self, run: RunHandle, name: str, data: Any = None, *, actor: str | None = None) -> None:
        """What the run's `ctx.wait_for(name)` gets."""
        await Workflow(run.workflow).signal(run.run_id, await self.open(), name, data, actor=actor)
        await self.refresh()

    async def resume(
        self, run: RunHandle, *, step: str | None = None, data: Any = None, actor: str | None = None
    ) -> None:
        """A paused run goes on; with `step`, `data` becomes what that step returns."""
        await Workflow(run.workflow).resume(run.run_id, await self.open(), step=step, data=data, actor=actor)
        await self.refresh()

    async def cancel(self, run: RunHandle, *, reason: str | None = None) -> None:
        await Workflow(run.workflow).cancel(run.run_id, await self.open(), reason=reason)
        await self.refresh()

    async def restart(self, run: RunHandle) -> None:
        """Once more from where it failed."""
        await Workflow(run.workflow).restart(run.run_id, await self.open())
        await self.refresh()

    async def retry_children(self, run: RunHandle, *, actor: str | None = None) -> list[RunHandle]:
        """Restart a failed run together with the children that it failed because of; those runs, this one first."""
        restarted = await Workflow(run.workflow).retry_children(run.run_id, await self.open(), actor=actor)
        await self.refresh()
        return [await self.run(run_id) for run_id in restarted]

    async def export(self, run: RunHandle) -> dict[str, Any]:
        """As `Run.export`: for a golden file that `replay` reads."""
        return await export_run(await self.open(), run.run_id)

    def fail_step(self, step: Step, error: BaseException | type[BaseException], *, times: int = 1) -> None:
        """The next `times` times the step's body would run, it raises this instead. By its name or its function."""
        self.interventions.fail(step, error, times)

    def stub_step(self, step: Step, value: Any, *, optional: bool = False) -> None:
        """The step's body is not run any more: it gives the value, or what the function given returns.

        A step that never runs until the kit ends is an error of the test, unless it is optional.
        """
        self.interventions.stub(step, value, optional=optional)

    def assert_stubs_used(self) -> None:
        """Raise AssertionError for a stub whose step never ran. The fixtures, and `with Kit()`, do so at the end."""
        __tracebackhide__ = True
        self.interventions.assert_all_used()

    # -- assertions --------------------------------------------------------------------------------------

    async def assert_enqueued(
        self, queue: str | None = None, *, workflow: Any = None, matching: Any = assertions.ANYTHING, times: int = 1
    ) -> None:
        """So many messages in the queue, or runs of the workflow that have not begun, match."""
        __tracebackhide__ = True
        store = await self.open()
        name = None if workflow is None else workflow if isinstance(workflow, str) else _name_of(workflow)
        await assertions.enqueued(store, queue=queue, workflow=name, matching=matching, times=times)

    async def refute_enqueued(
        self, queue: str | None = None, *, workflow: Any = None, matching: Any = assertions.ANYTHING
    ) -> None:
        __tracebackhide__ = True
        await self.assert_enqueued(queue, workflow=workflow, matching=matching, times=0)

    async def assert_steps(self, run: RunHandle, expected: Iterable[str]) -> None:
        """Its completed steps are these, in the order in which they were recorded."""
        __tracebackhide__ = True
        await self.refresh()
        assertions.steps(run, list(expected))

    async def assert_emitted(
        self, event_type: str, *, matching: Any = assertions.ANYTHING, run: RunHandle | None = None, times: int = 1
    ) -> None:
        """So many events of that type are in the outbox, published or not."""
        __tracebackhide__ = True
        await assertions.emitted(await self.open(), event_type, matching=matching, run=run, times=times)


def _picture(live: list[LiveRun]) -> list[LiveRun]:
    """Return how far the runs are: one that was only looked at again is where it was."""
    return [run._replace(visible_after=EPOCH) for run in live]


def handler_of(workflow: Any) -> Handler:
    if isinstance(workflow, Handler):
        return workflow
    if isinstance(workflow, Workflow):
        if workflow.handler is None:
            raise ConfigError(f"workflow {workflow.name!r} has no code here", hint="serve it with its handler")
        return workflow.handler
    if not callable(workflow):
        raise ConfigError(f"a workflow is a function, not {workflow!r}")
    return Handler.of(_name_of(workflow), workflow)


def _input_of(handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any], *, max_bytes: int) -> str:
    if len(args) == 1 and not kwargs and isinstance(args[0], Mapping):
        return input_text(handler, storable(dict(args[0]), max_bytes=max_bytes))
    return handler.encode_input(args, kwargs, max_bytes=max_bytes)


def _name_of(workflow: Any) -> str:
    name = workflow.name if isinstance(workflow, Workflow | Handler) else getattr(workflow, "__name__", "workflow")
    return checked_name("workflow", name)
