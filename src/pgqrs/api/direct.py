"""Running a workflow in the caller's own process, durably: seeds 002 and 003."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from pgqrs.db import claims, triggering
from pgqrs.db.claims import Claim
from pgqrs.db.tables import messages, workers, workflows
from pgqrs.db.triggering import NewRuns
from pgqrs.db.writes import Ending
from pgqrs.engine import observing
from pgqrs.engine.branches import outside
from pgqrs.engine.committer import Committer
from pgqrs.engine.executor import Executor
from pgqrs.engine.heartbeat import Heartbeat
from pgqrs.engine.outcome import Outcome
from pgqrs.engine.polling import Idling
from pgqrs.engine.registry import Handler
from pgqrs.errors import PauseError
from pgqrs.serialization import decode, encode
from pgqrs.types import RunStatus

if TYPE_CHECKING:
    from pgqrs.api.store import Store
    from pgqrs.api.workflow import DecoratedWorkflow


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
        text = encode(params, max_bytes=store.config.max_payload_bytes)
    with observing.triggered(name, 1) as origin:
        [run_id] = await triggering.trigger(
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
    """Durably, in this process: awaited for an async workflow, at once for a plain one."""
    handler = workflow.handler
    if args and isinstance(args[0], RunContext):
        run_context, args = args[0], args[1:]
        limit = run_context.store.config.max_payload_bytes
        text = handler.encode_input(args, kwargs, max_bytes=limit) if args or kwargs else None
        if handler.is_async:
            return _execute(run_context.store, run_context.run_id, handler, given=text)
        return _from_plain_code(_elsewhere(run_context, handler, text))
    if handler.is_async:
        return _new_run(workflow, args, kwargs)
    return _from_plain_code(_new_run(workflow, args, kwargs))


async def _new_run(workflow: DecoratedWorkflow[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """On the default store: PGQRS_DSN, else the file pgqrs.db here."""
    from pgqrs.api.connect import connect  # noqa: PLC0415 - the store imports this module's verbs

    async with connect(install=True) as store:
        text = workflow.handler.encode_input(args, kwargs, max_bytes=store.config.max_payload_bytes)
        context = await create_run(store, workflow.name, text=text)
        return await _execute(store, context.run_id, workflow.handler)


async def _elsewhere(context: RunContext, handler: Handler, text: str | None) -> Any:
    """On another loop than the store's: PostgreSQL connections cannot come along."""
    from pgqrs.api.connect import connect_with  # noqa: PLC0415 - as above

    if not context.store.database.dialect.is_postgres:
        return await _execute(context.store, context.run_id, handler, given=text)
    async with connect_with(context.store.config, clock=context.store.database.clock) as store:
        return await _execute(store, context.run_id, handler, given=text)


def _from_plain_code(work: Any) -> Any:
    """A plain workflow, perhaps called from inside an event loop: its own loop in its own thread."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = asyncio.run(work)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            outcome["error"] = error

    thread = threading.Thread(target=run, name="pgqrs-direct")
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


async def _execute(store: Store, run_id: int, handler: Handler, *, given: str | None = None) -> Any:
    """Passes over the handler until the run has ended; while it waits for time or a signal, so do we."""
    db = await store.ready()
    config = store.config
    worker_id = await workers.register(db, queue_id=None, name="direct", port=0, info={"pid": os.getpid()})
    heartbeat = Heartbeat(db, config, worker_id=worker_id, lease_seconds=config.lease_seconds)
    executor = Executor(db, config, Committer(db), heartbeat)
    try:
        while True:
            since = time.monotonic()
            claim = await claims.claim_run(db, run_id, worker_id=worker_id, lease_seconds=config.lease_seconds)
            if given is not None and claim.input in (None, "null"):
                claim = claim._replace(input=given)
            outcome, error = await _passed(executor, claim, handler, since=since)
            if error is not None and not isinstance(error, PauseError):
                raise error
            if isinstance(outcome.end, Ending) and outcome.end.status is RunStatus.SUCCESS:
                return decode(outcome.end.output or "null", handler.returns)
            await _until_visible(store, claim.lease.queue_id, run_id)
    finally:
        await asyncio.to_thread(heartbeat.close)
        await workers.stop(db, worker_id)


async def _passed(
    executor: Executor, claim: Claim, handler: Handler, *, since: float
) -> tuple[Outcome, BaseException | None]:
    """In a task of its own: a caller that is cancelled hands the run back; one that the handler cancels does not."""
    running = outside(executor.execute(claim, handler, executor.hold(claim, since=since), once=True))
    try:
        result: tuple[Outcome, BaseException | None] = await asyncio.shield(running)
    except asyncio.CancelledError:
        executor.handing_back = True
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise
    return result


async def _until_visible(store: Store, queue_id: int, run_id: int) -> None:
    db = await store.ready()
    idling = Idling(db, interval=store.config.poll_interval_seconds)
    with db.hints.subscribed([queue_id]) as bell:
        while not await messages.is_visible(db, run_id):
            bell.clear()
            await idling.wait(bell, [queue_id], at_most=store.config.poll_interval_seconds)
