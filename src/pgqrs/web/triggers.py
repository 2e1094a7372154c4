"""Triggering over HTTP, by the API and the dashboard: which runs a caller without `read` may find by their keys."""

from __future__ import annotations

from pgqrs.api.trigger import Trigger
from pgqrs.audit import EventType
from pgqrs.db.runs import history
from pgqrs.db.runs.triggers import Triggered
from pgqrs.errors import IdempotencyConflict
from pgqrs.web.auth.access import Scope
from pgqrs.web.routing import RequestContext


async def triggered(asked: RequestContext, new: Trigger, *, key: str | None) -> Triggered:
    """Return the run: a new one, or the one that has the key.

    A caller without `read` finds its own runs only. A key of another caller is a conflict, whether the input is the
    same or not: else the answer would tell whether a guess of that run's input is right.
    """
    may_read = asked.caller.may(Scope.READ)
    conflict = None
    try:
        [made] = await new.triggered(asked.store, actor=asked.actor)
    except IdempotencyConflict as error:
        if may_read or error.run_id is None:
            raise
        run_id, conflict = error.run_id, error
    else:
        if may_read or made.is_new:
            return made
        run_id = made.run_id
    # Asked in both cases, so that they take the same time, too.
    is_own = await _was_triggered_by(asked, run_id)
    if conflict is not None or not is_own:
        raise conflict or IdempotencyConflict(key or "", run_id)
    return made


async def _was_triggered_by(asked: RequestContext, run_id: int) -> bool:
    """As the run's history tells: where none is kept, nothing shows whose run it is."""
    first = await history.events(await asked.store.ready(), run_id, limit=1, after=0)
    return any(event.event_type == EventType.CREATED and event.actor == asked.actor for event in first)
