"""One run: why it does not move, its steps on a line of time, what happened to it, and what may be done."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from pgqrs.api.operations.export import export_pieces
from pgqrs.api.operations.run_actions import RETRY_CHILDREN, actions_of
from pgqrs.api.operations.why import why
from pgqrs.clock import EPOCH
from pgqrs.db.runs import history
from pgqrs.db.tables import runs
from pgqrs.db.tables.runs import StepPlace
from pgqrs.db.views import run_details
from pgqrs.db.views.run_details import Cut, FailedAttempt, TimedStep
from pgqrs.db.views.throughput import clock
from pgqrs.errors import ConfigError
from pgqrs.filters import RunFilter
from pgqrs.inputs import given_text
from pgqrs.web import pagination
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages import run_actions
from pgqrs.web.pages.confirm import endpoints_of
from pgqrs.web.pages.rendering import parameter, render
from pgqrs.web.pages.timeline import drawn
from pgqrs.web.pagination import step_cursor, step_place
from pgqrs.web.problems import Problem
from pgqrs.web.routing import DOWNLOAD_SECONDS, Document, Endpoint, RequestContext

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# What a page shows of a value; the rest is a download.
SHOWN_TEXT = 4_000
SHOWN_STEPS = 200
SHOWN_EVENTS = 100
SHOWN_CHILDREN = 20
SHOWN_ATTRIBUTES = 100
# Characters of a value that are read at once.
PIECE = 256 * 1024
# Buttons, in this order; the others stand behind "more".
_FIRST = ("resume", RETRY_CHILDREN, "restart", "pause", "cancel")


async def show(asked: RequestContext) -> Response:
    run_id = asked.path("run_id")
    db = await asked.store.ready()
    row = await runs.get(db, run_actions.checked(run_id))
    now = await clock(db)
    after = step_place(parameter(asked, "steps_after"))
    steps = await run_details.timeline(db, run_id, limit=SHOWN_STEPS + 1, after=after)
    failures = await run_details.failed_attempts(db, run_id)
    events_after = _number(parameter(asked, "events_after"))
    events = await history.events(db, run_id, limit=SHOWN_EVENTS + 1, after=events_after, cut=SHOWN_TEXT)
    children = await pagination.runs(asked.store, RunFilter(parent_run_id=run_id, deleted=None), limit=SHOWN_CHILDREN)
    attributes, other_attributes = _attributes(row.attributes)
    actions = actions_of(row)
    return await render(
        asked,
        "run.html",
        here="runs",
        run=row,
        why=await why(run_id, asked.store),
        holder=None if row.worker_id is None else await run_details.holder_of(db, row.worker_id),
        progress=_progress(row.progress),
        attributes=attributes,
        other_attributes=other_attributes,
        first_actions=[each for each in _FIRST if each in actions],
        more_actions=[each for each in actions if each not in _FIRST],
        page_actions=run_actions.BY_VERB,
        waits=[each for each in await run_actions.waits_of(asked, [run_id]) if row.deleted_at is None],
        timeline=drawn(row, steps[:SHOWN_STEPS], failures, now),
        more_steps=_behind(steps[SHOWN_STEPS - 1]) if len(steps) > SHOWN_STEPS else None,
        chosen=await _chosen(asked, run_id, failures),
        events=events[:SHOWN_EVENTS],
        more_events=events[SHOWN_EVENTS - 1].event_id if len(events) > SHOWN_EVENTS else None,
        children=children,
        input=_cut(None if row.input is None else given_text(row.input)),
        output=_cut(row.output),
        error=_cut(row.error),
    )


async def _chosen(asked: RequestContext, run_id: int, failures: list[FailedAttempt]) -> dict[str, Any] | None:
    """The step whose drawer is open: the address says which."""
    step_id = parameter(asked, "step")
    if not step_id or "\0" in step_id:
        return None
    found = await run_details.step(await asked.store.ready(), run_id, step_id, cut=SHOWN_TEXT)
    if found is None:
        return None
    return {"details": found, "failures": [each for each in failures if each.step_id == step_id]}


async def download(asked: RequestContext) -> Response:
    """A value in full, as a file: never as something that a browser would show."""
    run_id = run_actions.checked(asked.path("run_id"))
    what, step_id = parameter(asked, "what"), parameter(asked, "step")
    if what == "run":
        pieces = export_pieces(asked.store, run_id)
    elif what not in ("input", "output", "error") or "\0" in step_id:
        raise Problem(404, "not-found", "there is no such value", hint="what=input, output, error or run")
    elif step_id:
        pieces = _step_pieces(asked.store, run_id, step_id, what)
    else:
        pieces = _run_pieces(asked.store, run_id, what)
    # Step ids hold anything: the name of the file is ours.
    name = f"run-{run_id}{'-step' if step_id else ''}-{what}.json"
    # What is not there is said before the answer begins.
    await runs.workflow_of(await asked.store.ready(), run_id)
    return Document(asked, pieces, "application/octet-stream", content_disposition=f'attachment; filename="{name}"')


async def _run_pieces(store: Store, run_id: int, what: str) -> AsyncIterator[bytes]:
    """A run's own value; it is read at once, as what it was given is stored in another form than it is shown in."""
    text = getattr(await runs.get(await store.ready(), run_id), what) or ""
    yield (given_text(text) if what == "input" else text).encode("utf-8", "replace")


async def _step_pieces(store: Store, run_id: int, step_id: str, what: str) -> AsyncIterator[bytes]:
    """A step's value; nothing for a step that is not there."""
    db, start = await store.ready(), 1
    while piece := await run_details.step_value(db, run_id, step_id, what, start=start, most=PIECE):
        yield piece.encode("utf-8", "replace")
        start += PIECE


def _cut(text: str | None) -> Cut:
    return Cut(None, None) if text is None else Cut(text[:SHOWN_TEXT], len(text))


def _progress(text: str | None) -> dict[str, Any] | None:
    """What `ctx.progress` said, if it can be drawn."""
    try:
        told = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(told, dict) or not isinstance(told.get("done"), int | float):
        return None
    total = told.get("total")
    return {
        "done": told["done"],
        "total": total if isinstance(total, int | float) and total > 0 else None,
        "note": str(told.get("note") or ""),
    }


def _attributes(text: str | None) -> tuple[list[tuple[str, str, str | None]], int]:
    """Name, value, and the filter that finds runs which have it (None for what cannot be searched), of the first; and
    how many more there are."""
    try:
        told = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return [], 0
    pairs = list(told.items()) if isinstance(told, dict) else []
    found = []
    for name, value in pairs[:SHOWN_ATTRIBUTES]:
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        try:
            query: str | None = str(RunFilter(attributes={name: value}))
        except ConfigError:
            query = None
        found.append((name, shown, query))
    return found, max(0, len(pairs) - SHOWN_ATTRIBUTES)


def _number(text: str) -> int:
    if not text:
        return 0
    if not (text.isdecimal() and text.isascii() and len(text) <= 18):
        raise Problem(422, "bad-request", "that is no place in the history")
    return int(text)


def _behind(step: TimedStep) -> str:
    return step_cursor(StepPlace(step.started_at or EPOCH, step.ordinal, step.step_id))


ENDPOINTS = (
    Endpoint("GET", "/runs/{run_id:int}", show, Scope.READ, "A run", page=True),
    Endpoint(
        "GET",
        "/runs/{run_id:int}/download",
        download,
        Scope.READ,
        "A value of a run in full",
        page=True,
        answer_seconds=DOWNLOAD_SECONDS,
    ),
    *endpoints_of(run_actions.ACTIONS, here="runs"),
    Endpoint(
        "POST",
        "/runs/{run_id:int}/answer",
        run_actions.answer,
        Scope.OPERATE,
        "Answer what a run waits for",
        page=True,
    ),
)
