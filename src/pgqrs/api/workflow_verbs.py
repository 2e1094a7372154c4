"""What can be asked of a workflow's runs by its name, and done to them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

from pgqrs.api.arguments import check_texts, checked_run_id, in_order
from pgqrs.api.operations.metrics import workflow_metrics
from pgqrs.api.operations.search import events_of, rows_of, steps_of, wanted_by
from pgqrs.api.run import Run
from pgqrs.db.driver import Driver
from pgqrs.db.hints import OUTBOX
from pgqrs.db.runs import transitions
from pgqrs.db.tables import runs, workflows
from pgqrs.errors import RunNotFound
from pgqrs.reports import WorkflowMetrics
from pgqrs.serialization import encode, naming
from pgqrs.text.names import checked_step_name
from pgqrs.types import Event, Result_co, Step

if TYPE_CHECKING:
    from pgqrs.api.store import Store


class WorkflowVerbs(Generic[Result_co]):
    """The verbs of `Workflow` that need only its name: its code may be another program's."""

    name: str

    @property
    def _returns(self) -> Any:
        """The type that results are decoded to."""
        return Any

    @in_order
    async def get_run(self, run_id: int, store: Store) -> Run[Result_co]:
        row = await runs.get(await store.ready(), checked_run_id(run_id))
        if row.workflow != self.name:
            raise RunNotFound(run_id, workflow=row.workflow)
        return Run(row, store, returns=self._returns)

    @in_order
    async def runs(
        self, store: Store, *, limit: int = 50, cursor: str | None = None, **fields: Any
    ) -> RunPage[Result_co]:
        """Newest first; `fields` are those of RunFilter (status, attributes ...); `page.next_cursor` leads on."""
        wanted = wanted_by(None, {**fields, "workflow": self.name})
        rows, next_cursor = await rows_of(store, wanted, limit=limit, cursor=cursor)
        page: RunPage[Result_co] = RunPage(Run(row, store, returns=self._returns) for row in rows)
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
        """The recorded steps of a run, in the order in which they were recorded."""
        await self._ours(run_id, store)
        return await steps_of(store, run_id)

    @in_order
    async def cancel(self, run_id: int, store: Store, *, reason: str | None = None, actor: str | None = None) -> None:
        """Ends the run and its children; its worker can write nothing more. Only `restart` undoes it."""
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
        """A paused run continues now; with `step`, `data` becomes what that step returns."""
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
        """Lists leave it out, no worker executes it, and its idempotency key is free. Retention removes it later.

        The worker that executes it can write nothing more; its children continue (`cancel` ends those too).
        """
        db = await self._ours(run_id, store, reason=reason, actor=actor)
        await transitions.delete(db, run_id, reason=reason, actor=actor)
        await self._wake(db, about=[run_id])

    @in_order
    async def restore(self, run_id: int, store: Store, *, actor: str | None = None) -> None:
        """Takes `delete` back; a run that was under way continues."""
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


class RunPage(list[Run[Result_co]]):
    """A page of runs."""

    next_cursor: str | None = None
