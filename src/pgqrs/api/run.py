"""A run as its owner sees it."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from pgqrs.api.operations.export import export_run
from pgqrs.api.operations.search import events_of, steps_of
from pgqrs.api.operations.why import why
from pgqrs.db.tables import runs
from pgqrs.db.tables.runs import RunRow
from pgqrs.error_copies import copy_of
from pgqrs.errors import ConnectionFailed, ExecutionFailed, RunCancelled, RunDeleted, WaitTimeout
from pgqrs.inputs import given
from pgqrs.reports import Why
from pgqrs.serialization import decode, naming
from pgqrs.tasks import detached
from pgqrs.types import ENDED, Event, Result_co, RunStatus, Step

if TYPE_CHECKING:
    from pgqrs.api.store import Store

T = TypeVar("T")
log: logging.Logger = logging.getLogger("pgqrs")


class Run(Generic[Result_co]):
    """One execution of a workflow, as it was when it was read; `refresh` reads it again."""

    def __init__(self, row: RunRow, store: Store, *, returns: Any = Any) -> None:
        self._row = row
        self._store = store
        self._returns = returns

    @property
    def run_id(self) -> int:
        return self._row.run_id

    @property
    def workflow(self) -> str:
        return self._row.workflow

    @property
    def status(self) -> RunStatus:
        return self._row.status

    @property
    def last_error(self) -> str | None:
        return self._row.last_error

    @property
    def error_signature(self) -> str | None:
        return self._row.error_signature

    @property
    def created_at(self) -> datetime:
        return self._row.created_at

    @property
    def started_at(self) -> datetime | None:
        return self._row.started_at

    @property
    def paused_at(self) -> datetime | None:
        return self._row.paused_at

    @property
    def completed_at(self) -> datetime | None:
        return self._row.completed_at

    @property
    def updated_at(self) -> datetime:
        return self._row.updated_at

    @property
    def worker_id(self) -> int | None:
        return self._row.worker_id

    @property
    def attempt(self) -> int:
        return self._row.attempt

    @property
    def max_attempts(self) -> int:
        return self._row.max_attempts

    @property
    def priority(self) -> int:
        return self._row.priority

    @property
    def idempotency_key(self) -> str | None:
        return self._row.idempotency_key

    @property
    def parent_run_id(self) -> int | None:
        return self._row.parent_run_id

    @property
    def dead_letter_of(self) -> int | None:
        return self._row.dead_letter_of

    @property
    def waiting_for(self) -> str | None:
        return self._row.waiting_for

    @property
    def deleted_at(self) -> datetime | None:
        return self._row.deleted_at

    @property
    def delete_reason(self) -> str | None:
        return self._row.delete_reason

    @property
    def input(self) -> Any:
        """What it was given: the argument of a workflow with one parameter, else a dict by name."""
        return given(self._row.input)

    @property
    def error(self) -> Any:
        """What went wrong: type, message and traceback; None when nothing did."""
        return None if self._row.error is None else decode(self._row.error)

    @property
    def attributes(self) -> Any:
        return None if self._row.attributes is None else decode(self._row.attributes)

    @property
    def progress(self) -> Any:
        """What `ctx.progress` said last: done, total and note; None when it said nothing."""
        return None if self._row.progress is None else decode(self._row.progress)

    @overload
    def output(self, type: None = ...) -> Result_co | None: ...
    @overload
    def output(self, type: type[T]) -> T | None: ...
    @overload
    def output(self, type: Any) -> Any: ...
    def output(self, type: Any = None) -> Any:  # noqa: A002 - reads well where it is called: run.output(type=Order)
        """What the handler returned, of its annotated type when the workflow is known here, or of the one given."""
        if self._row.output is None:
            return None
        with naming(f"the result of workflow {self._row.workflow!r}"):
            return decode(self._row.output, self._returns if type is None else type)

    async def refresh(self) -> Self:
        """Reads it again."""
        self._row = await runs.get(await self._store.ready(), self.run_id)
        return self

    async def steps(self) -> list[Step]:
        """What is on record of its steps, in the order in which they were recorded."""
        return await steps_of(self._store, self.run_id)

    async def why(self) -> Why:
        """Why it does not move: `print(await run.why())`."""
        return await why(self.run_id, self._store)

    async def events(self, *, limit: int = 100, after: int = 0) -> list[Event]:
        """What happened to it, oldest first; `after` the id of the last one leads on."""
        return await events_of(self._store, self.run_id, limit=limit, after=after)

    async def export(self) -> dict[str, Any]:
        """Its input, steps, signals and outcome as plain data for a JSON file; `pgqrs.testing.replay` takes it."""
        return await export_run(self._store, self.run_id)

    async def result(self, timeout: float | None = None) -> Result_co:  # noqa: ASYNC109 - callers without an event loop have it, too
        """Waits until the run has ended: its output, or ExecutionFailed, RunCancelled, RunDeleted, WaitTimeout."""
        if self.status not in ENDED:
            await self._store.results.wait(self.run_id, timeout)
            await self.refresh()
        if self.status not in ENDED:
            raise RunDeleted(self.run_id, self._row.delete_reason)
        match self.status:
            case RunStatus.SUCCESS:
                output: Any = self.output()
                return output  # type: ignore[no-any-return]
            case RunStatus.CANCELLED:
                raise RunCancelled(self.run_id, self._row.last_error)
            case _:
                raise ExecutionFailed(self.run_id, self._row.last_error)

    def __repr__(self) -> str:
        return f"<Run {self.run_id} of {self._row.workflow} {self.status}>"


class Results:
    """Waits for runs to end: one question for all that wait in this process, at a hint or now and then.

    Those who wait are told, too, when no answer can come any more: the store was closed or promoted, or an error that
    another try does not heal.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, run_id: int, seconds: float | None) -> None:
        """Returns when the run has ended; WaitTimeout when it has not in time."""
        db = await self._store.ready()
        if self._closed:
            raise ConnectionFailed("this store is closed", hint="connect again")
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, set()).add(ended)
        if self._task is None or self._task.done():
            self._task = detached(self._run(), name="pgqrs-results")
        # A new run is waited for: look at once, it may have ended already.
        db.hints.wake(frozenset({-run_id}))
        try:
            async with asyncio.timeout(seconds):
                await ended
        except TimeoutError:
            raise WaitTimeout(f"run {run_id} has not ended within {seconds} s; it goes on") from None
        finally:
            self._waiting[run_id].discard(ended)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

    async def close(self) -> None:
        """Those who wait are told so."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._refuse(ConnectionFailed("this store was closed while the result was waited for", hint="connect again"))

    def _refuse(self, error: Exception) -> None:
        for ended in [each for waiting in self._waiting.values() for each in waiting]:
            if not ended.done():
                ended.set_exception(copy_of(error))

    async def _run(self) -> None:
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait would wait for ever
            self._refuse(error)

    async def _look(self) -> None:
        """While a run is waited for."""
        db = await self._store.ready()
        interval = self._store.config.poll_interval_seconds
        while self._waiting:
            with db.hints.subscribed([-run_id for run_id in self._waiting]) as bell:
                started = time.monotonic()
                waited_for = set(self._waiting)
                while waited_for == set(self._waiting):
                    bell.clear()
                    try:
                        finished = await runs.finished(db, list(self._waiting))
                    except ConnectionFailed as error:
                        # Callers have timeouts of their own; without one they wait for the database, too.
                        log.warning("cannot look for results: %s", error)
                        finished = set()
                    for ended in [each for run_id in finished for each in self._waiting.get(run_id, ())]:
                        if not ended.done():
                            ended.set_result(None)
                    # Those who were told take themselves off the list.
                    await asyncio.sleep(0)
                    # The longer it takes the less often it is asked.
                    patience = min(max(interval, (time.monotonic() - started) / 10), 5 * interval)
                    if waited_for == set(self._waiting):
                        await bell.wait(patience)
