"""Running a workflow in the caller's own process, durably."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from pgqrs.api.arguments import checked_key
from pgqrs.api.trigger import new_runs
from pgqrs.db.runs import claims, direct_calls, triggers
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import workflows
from pgqrs.engine import instrumentation, threads
from pgqrs.engine.ctx.context import Context
from pgqrs.engine.ctx.steps import in_step
from pgqrs.engine.ctx.sync_context import SyncContext
from pgqrs.engine.definitions.arguments import encoded_inputs
from pgqrs.engine.definitions.handlers import Handler, decorated, served
from pgqrs.engine.replay.branches import current_context
from pgqrs.engine.runs import process_identity
from pgqrs.engine.runs.direct_call import DirectCall
from pgqrs.errors import ConfigError, NotAllowedInStep
from pgqrs.serialization import Encoded, decode, encode

if TYPE_CHECKING:
    from pgqrs.api.store import Store
    from pgqrs.api.workflow import DecoratedWorkflow

log: logging.Logger = logging.getLogger("pgqrs")

# How late Ctrl-C may be heard.
_LOOK_SECONDS = 0.1


class RunContext:
    """One run, held by this process: pass it to the decorated workflow in the place of `ctx`."""

    __pgqrs_context__ = True

    def __init__(self, store: Store, run_id: int, workflow: str) -> None:
        self.store = store
        self.run_id = run_id
        self.workflow = workflow

    def __repr__(self) -> str:
        return f"<RunContext {self.run_id} of {self.workflow}>"


async def create_run(store: Store, name: str, params: Any = None, *, text: str | None = None) -> RunContext:
    """Definition and one run; nobody else takes it for the length of a lease. `text` is an encoded input."""
    db = await store.ready()
    found = await workflows.create(db, name)
    if text is None:
        # Without an input, the call that executes the run brings its arguments.
        limit = store.config.max_payload_bytes
        text = "null" if params is None else encoded_inputs(found, [params], max_bytes=limit, many=False)[0]
    with instrumentation.triggered(name, 1) as origin:
        [run_id] = await triggers.trigger(
            db,
            NewRuns(
                found.workflow_id,
                found.queue_id,
                [text],
                delay=store.config.lease_seconds,
                max_attempts=store.config.max_attempts,
                headers=origin.headers,
            ),
        )
        origin.made([run_id])
    return RunContext(store, run_id, name)


def call_here(workflow: DecoratedWorkflow[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the workflow durably: in the run that is given, as a child of the run that calls it, or in a new one."""
    if args and isinstance(args[0], RunContext):
        return _in_run(workflow.handler, args[0], args[1:], kwargs)
    if (parent := calling_context(args)) is not None:
        return _as_child(workflow, parent, args, kwargs)
    return _on_a_store(workflow, args, kwargs, key=None, store=None)


def run_here(
    workflow: DecoratedWorkflow[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    key: str | None,
    store: Store | None,
) -> Any:
    """As `call_here`, in the run that has the key, where there is one already."""
    if (parent := calling_context(args)) is None:
        return _on_a_store(workflow, args, kwargs, key=None if key is None else checked_key(key), store=store)
    if key is not None or store is not None:
        raise ConfigError(
            f"workflow {workflow.name!r} is called inside run {parent.run_id}, so it is a child run in the same "
            "store, recorded once without a key",
            hint="leave key= and store= out",
        )
    return _as_child(workflow, parent, args, kwargs)


# -- inside a workflow ---------------------------------------------------------------------------------------


def calling_context(args: tuple[Any, ...]) -> Any:
    """Return the context of the run that calls: the one it passes on, else its own; None outside of runs."""
    given = args[0] if args and isinstance(args[0], Context | SyncContext) else None
    return given if given is not None else current_context.get()


def _as_child(
    workflow: DecoratedWorkflow[Any, Any], parent: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Start a child run and wait for its result, both recorded; in an async workflow the result is awaited."""
    if in_step():
        raise NotAllowedInStep(
            f"workflow {workflow.name!r} was called in the body of a step of run {parent.run_id}, and a step "
            "cannot wait for a child run",
            hint="call it in the body of the workflow, and pass its result to the step",
        )
    if args and args[0] is parent:
        args = args[1:]
    # The child's store limits its input when it is written.
    text = workflow.handler.encode_input(args, kwargs, max_bytes=2**31)
    spawned = parent.spawn(workflow, Encoded(text))
    if isinstance(parent, SyncContext):
        return _typed(spawned.result(), workflow.handler)

    async def result() -> Any:
        return _typed(await (await spawned).result(), workflow.handler)

    return result()


def _typed(value: Any, handler: Handler) -> Any:
    """A child's result comes back as plain data: here its type is known."""
    return value if handler.returns is Any else decode(encode(value), handler.returns)


# -- outside of workflows ------------------------------------------------------------------------------------


def _in_run(handler: Handler, context: RunContext, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    limit = context.store.config.max_payload_bytes
    text = handler.encode_input(args, kwargs, max_bytes=limit) if args or kwargs else None

    async def call(store: Store) -> Any:
        return await _execute_run(store, context, handler, given=text)

    return call(context.store) if handler.is_async else _from_plain_code(_elsewhere(context.store, call))


def _on_a_store(
    workflow: DecoratedWorkflow[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    key: str | None,
    store: Store | None,
) -> Any:
    async def call(store: Store) -> Any:
        return await _execute_new(store, workflow, args, kwargs, key=key)

    work = _on_the_default_store(call) if store is None else _elsewhere(store, call)
    if not workflow.handler.is_async:
        return _from_plain_code(work)
    if store is None:
        return work
    work.close()
    return call(store)


async def _on_the_default_store(call: Callable[[Store], Awaitable[Any]]) -> Any:
    """PGQRS_DSN, else the file pgqrs.db here; in a test with the testing kit, the kit's database."""
    from pgqrs.api.connect import connect  # noqa: PLC0415 - the store imports this module's verbs

    async with connect(install=True) as store:
        return await call(store)


async def _elsewhere(store: Store, call: Callable[[Store], Awaitable[Any]]) -> Any:
    """On another loop than the store's: PostgreSQL connections cannot come along."""
    from pgqrs.api.connect import Connecting  # noqa: PLC0415 - as above

    if not store.database.dialect.is_postgres:
        return await call(store)
    async with Connecting(store.config, install=False, clock=store.database.clock) as own:
        return await call(own)


def _from_plain_code(work: Coroutine[Any, Any, Any]) -> Any:
    """A plain workflow, perhaps called from inside an event loop: its own loop in its own thread.

    Ctrl-C reaches the caller's thread alone. It cancels the work, which hands the run back, and is then raised.
    """
    outcome: dict[str, Any] = {}
    interrupted, ended = threading.Event(), threading.Event()

    async def interruptible() -> Any:
        outcome["cancel"] = asyncio.get_running_loop(), asyncio.current_task()
        if interrupted.is_set():
            work.close()
            raise asyncio.CancelledError
        return await work

    def run() -> None:
        try:
            outcome["value"] = asyncio.run(interruptible())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            outcome["error"] = error
        finally:
            ended.set()

    try:
        threading.Thread(target=run, name="pgqrs-direct").start()
        # Not `join`: Python 3.11 takes a thread whose join was interrupted for one that has ended.
        _wait_interruptibly(ended)
    except BaseException:
        interrupted.set()
        if "cancel" in outcome:
            loop, task = outcome["cancel"]
            with contextlib.suppress(RuntimeError):  # its loop is closed: the work has ended
                loop.call_soon_threadsafe(task.cancel)
        _wait_interruptibly(ended)
        if threads.are_busy():
            log.warning("code of a handler still runs in a thread, and Python waits for it; Ctrl-C again ends that")
        raise
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _wait_interruptibly(event: threading.Event) -> None:
    """A signal that comes just before the thread begins to wait does not wake it: one of ten Ctrl-C was not heard."""
    is_main = threading.current_thread() is threading.main_thread()
    while not event.wait(_LOOK_SECONDS if is_main else None):
        pass


# -- executing -----------------------------------------------------------------------------------------------


async def _execute_new(
    store: Store,
    workflow: DecoratedWorkflow[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    key: str | None,
) -> Any:
    """A new run, or the one that has the key; then what earlier calls of the workflow left behind."""
    db, config, handler = await store.ready(), store.config, workflow.handler
    text = handler.encode_input(args, kwargs, max_bytes=config.max_payload_bytes)
    found = await workflows.create(db, workflow.name)
    since = time.monotonic()
    with instrumentation.triggered(workflow.name, 1) as origin:
        new = new_runs(config, found, [Encoded(text)], () if key is None else [key]).with_headers(origin.headers)
        begun = await direct_calls.begin(
            db, new, workflow=workflow.name, info=_call_info(), lease_seconds=config.lease_seconds
        )
        origin.made([begun.run_id])
    call = DirectCall(db, config, worker_id=begun.worker_id, handler_of=_handler_of)
    try:
        try:
            return await call.result_of(
                begun.run_id, handler, queue_id=found.queue_id, claim=begun.claim, since=since
            )
        finally:
            if call.has_ended:
                await call.finish_left_behind(workflow.name, handler, queue_id=found.queue_id)
    finally:
        await call.close()


async def _execute_run(store: Store, context: RunContext, handler: Handler, *, given: str | None) -> Any:
    """A run of `admin.create_workflow`: this process takes it from any other holder."""
    db, config, run_id = await store.ready(), store.config, context.run_id
    begun = await direct_calls.join(db, run_id, workflow=context.workflow, info=_call_info())
    call = DirectCall(db, config, worker_id=begun.worker_id, handler_of=_handler_of)
    try:
        since = time.monotonic()
        claim = await claims.claim_run(db, run_id, worker_id=begun.worker_id, lease_seconds=config.lease_seconds)
        return await call.result_of(
            run_id, handler, queue_id=claim.lease.queue_id, claim=claim, since=since, given=given
        )
    finally:
        await call.close()


def _call_info() -> dict[str, Any]:
    return {**process_identity.identity(), "call": secrets.token_hex(8)}


def _handler_of(name: str) -> Handler | None:
    return decorated.get(name) or served.get(name)
