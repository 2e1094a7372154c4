"""The workflows of a store as people list them, and pausing them by their name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pgqrs.api.operations.admin import admin
from pgqrs.db.tables import workflows
from pgqrs.db.views import metrics
from pgqrs.text.names import checked_name

if TYPE_CHECKING:
    from pgqrs.api.store import Store


@dataclass(frozen=True, slots=True)
class WorkflowLine:
    """A workflow with its runs that have not ended, counted up to 10,000."""

    workflow: str
    created_at: datetime
    pending: int
    running: int
    paused: int


async def workflow_lines(store: Store, *, limit: int = 2**31 - 1, after: str = "") -> list[WorkflowLine]:
    """Every workflow, by name; or so many, from the one behind `after` on."""
    db = await store.ready()
    live = {each.workflow: each for each in await metrics.live_runs(db, limit=limit, after=after)}
    found = []
    for each in await workflows.page(db, limit=limit, after=after):
        counts = live.get(each.name)
        numbers = (counts.pending.count, counts.running.count, counts.paused.count) if counts else (0, 0, 0)
        found.append(WorkflowLine(each.name, each.created_at, *numbers))
    return found


async def pause_workflow(store: Store, name: str) -> None:
    """No run of it begins or goes on until it is resumed; what is at work finishes."""
    await _check(store, name)
    await admin(store).pause_queue(name)


async def resume_workflow(store: Store, name: str) -> None:
    await _check(store, name)
    await admin(store).resume_queue(name)


async def _check(store: Store, name: str) -> None:
    """Its queue has its name; a queue without a workflow is not meant."""
    await workflows.get(await store.ready(), checked_name("workflow", name))
