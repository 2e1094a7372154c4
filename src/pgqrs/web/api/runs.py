"""Runs: trigger, find, look."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from starlette.requests import ClientDisconnect

from pgqrs.api.operations.admin import admin
from pgqrs.api.operations.export import export_pieces
from pgqrs.api.operations.metrics import LIVE_LEASES
from pgqrs.api.operations.run_actions import actions_of
from pgqrs.api.operations.stored_json import stored
from pgqrs.api.operations.why import why
from pgqrs.api.workflow import workflow
from pgqrs.db.runs import history
from pgqrs.db.tables import runs, workflows
from pgqrs.db.tables.runs import RunRow, StepRow
from pgqrs.errors import ConfigError, ExecutionFailed, RunCancelled, RunDeleted, WaitTimeout
from pgqrs.filters import RunFilter, filter_of
from pgqrs.reports import Why
from pgqrs.types import ENDED, Event, RunStatus, RunSummary
from pgqrs.web import pagination
from pgqrs.web.api.shapes import API, Id, Limit, Name, RequestShape, Time
from pgqrs.web.auth.access import Scope
from pgqrs.web.problems import Problem, problem_of
from pgqrs.web.request_body import JSON
from pgqrs.web.routing import DOWNLOAD_SECONDS, Document, Endpoint, Items, Reply, RequestContext, items
from pgqrs.web.triggers import triggered

# A client that waits longer asks again: proxies close connections on which nothing comes for a minute.
MOST_WAIT_SECONDS = 60
# Error, reason, what it waits for, attributes and progress.
_TEXTS_OF_SUMMARY = 5


class NewRun(RequestShape):
    """A run to be: `params` is its input, any JSON."""

    workflow: Name
    params: Any = None
    idempotency_key: str | None = None
    run_at: Time | None = None
    delay_seconds: float = 0.0
    priority: int = 0
    max_attempts: int | None = None
    attributes: dict[str, Any] | None = None
    # 409 when no live worker serves the workflow, in place of a warning.
    require_worker: bool = False


class TriggeredRun(RequestShape):
    """What a trigger gives, once or as often as its key is used."""

    run_id: int
    workflow: Name
    idempotency_key: str | None
    created_at: Time
    warnings: list[str]


class Unfinished(RequestShape):
    """Where a run stands that has no result yet."""

    run_id: int
    status: RunStatus
    waiting_for: str | None


class RunsAsked(RequestShape):
    """The filter as one text (`q`), as the words of its grammar, or both; a page of what it finds."""

    q: str | None = None
    status: str | None = None
    workflow: str | None = None
    since: str | None = None
    before: str | None = None
    completed_since: str | None = None
    completed_before: str | None = None
    # name=value; for several, `q=attr:a=1 attr:b=2`.
    attr: str | None = None
    error: str | None = None
    text: str | None = None
    parent: str | None = None
    key: str | None = None
    worker: str | None = None
    waiting: str | None = None
    deleted: str | None = None
    limit: Limit = 50
    cursor: str | None = None
    # Also how many there are, counted up to 10,000.
    count: bool = False

    def filter(self) -> RunFilter:
        words = {name: getattr(self, name) for name in _WORDS}
        return filter_of(self.q, attr=[self.attr] if self.attr is not None else [], **words)


_WORDS = tuple(name for name in RunsAsked.__struct_fields__ if name not in ("q", "attr", "limit", "cursor", "count"))


class StepsAsked(RequestShape):
    limit: Limit = 100
    cursor: str | None = None


class EventsAsked(RequestShape):
    after: Id = 0
    limit: Limit = 100


class ResultAsked(RequestShape):
    """How many seconds to wait for its end."""

    wait: Annotated[int, msgspec.Meta(ge=0, le=MOST_WAIT_SECONDS)] = 0


class ChildrenAsked(RequestShape):
    limit: Limit = 50
    cursor: str | None = None


async def trigger(asked: RequestContext) -> Reply:
    given: NewRun = asked.body
    key = _key(asked)
    named = workflow(given.workflow)
    about = named.trigger(
        given.params,
        idempotency_key=key,
        require_worker=given.require_worker or None,
        run_at=given.run_at,
        delay=given.delay_seconds,
        priority=given.priority,
        max_attempts=given.max_attempts,
        attributes=given.attributes,
    )
    made = await triggered(asked, about, key=key)
    row = await runs.get(await asked.store.ready(), made.run_id)
    told = TriggeredRun(
        row.run_id, row.workflow, row.idempotency_key, row.created_at, await _warnings(asked, named.name)
    )
    where = asked.url(f"{API}/runs/{row.run_id}")
    return Reply(msgspec.structs.asdict(told), 201 if made.is_new else 200, {"location": where})


def _key(asked: RequestContext) -> str | None:
    """From the header, as HTTP has it, or from the body, as everything else."""
    header, inside = asked.request.headers.get("idempotency-key"), asked.body.idempotency_key
    if header is not None and inside is not None and header != inside:
        raise ConfigError(
            "the header Idempotency-Key and idempotency_key in the body differ", hint="give one of them"
        )
    return inside if header is None else header


async def _warnings(asked: RequestContext, name: str) -> list[str]:
    store = asked.store
    within = LIVE_LEASES * store.config.lease_seconds
    if await workflows.count_live_workers(await store.ready(), await store.workflow(name), within=within):
        return []
    return [f"no live worker serves workflow {name!r}: the run waits in its queue"]


async def find(asked: RequestContext) -> Any:
    query: RunsAsked = asked.query
    wanted = query.filter()
    found = await _page(asked, wanted)
    if query.count:
        found["count"] = await admin(asked.store).count_runs(wanted)
    return found


async def _page(asked: RequestContext, wanted: RunFilter) -> dict[str, Any]:
    cut = pagination.cut_for(asked.query.limit, texts=_TEXTS_OF_SUMMARY)
    page = await pagination.runs(asked.store, wanted, limit=asked.query.limit, cursor=asked.query.cursor, cut=cut + 1)
    return items(page, cut=cut, next_cursor=page.next_cursor)


async def get(asked: RequestContext) -> RunRow:
    return await runs.get(await asked.store.ready(), asked.number("run_id"))


async def steps(asked: RequestContext) -> Any:
    query: StepsAsked = asked.query
    db, run_id = await asked.store.ready(), asked.number("run_id")
    after, cut = pagination.step_place(query.cursor), pagination.cut_for(query.limit, texts=3)
    found = await runs.steps_page(db, run_id, limit=query.limit + 1, after=after, cut=cut + 1)
    if not found:
        await runs.workflow_of(db, run_id)
    page = found[: query.limit]
    more = pagination.step_cursor(runs.place_of(page[-1])) if len(found) > query.limit else None
    return items(page, cut=cut, next_cursor=more)


async def events(asked: RequestContext) -> Any:
    query: EventsAsked = asked.query
    db, run_id, cut = await asked.store.ready(), asked.number("run_id"), pagination.cut_for(query.limit, texts=1)
    found = await history.events(db, run_id, limit=query.limit, after=query.after, cut=cut + 1)
    if not found:
        await runs.workflow_of(db, run_id)
    return items(found, cut=cut)


async def result(asked: RequestContext) -> Any:
    """The output; 202 while it goes on, 409 when it ended otherwise, 410 when it was deleted."""
    row = await get(asked)
    if row.status not in ENDED and asked.query.wait:
        await _wait_for_end(asked, row.run_id)
        row = await get(asked)
    if row.status is RunStatus.SUCCESS:
        # As it is stored: whether this process could read it does not matter.
        return stored(row.output, raw=True)
    if row.status is RunStatus.ERROR:
        raise await forbidden(asked, row.run_id, ExecutionFailed(row.run_id, row.last_error))
    if row.status is RunStatus.CANCELLED:
        raise await forbidden(asked, row.run_id, RunCancelled(row.run_id, row.last_error))
    if row.deleted_at is not None:
        raise RunDeleted(row.run_id, row.delete_reason)
    return Reply(Unfinished(row.run_id, row.status, row.waiting_for), 202, {"retry-after": "1"})


async def _wait_for_end(asked: RequestContext, run_id: int) -> None:
    """Until the run has ended, the time is up, or the client is gone: then its place is free for its next request."""

    async def wait() -> None:
        with suppress(WaitTimeout):
            await asked.store.results.wait(run_id, asked.query.wait)

    async def leave() -> None:
        while (await asked.request.receive())["type"] != "http.disconnect":
            pass

    waiting, leaving = asyncio.ensure_future(wait()), asyncio.ensure_future(leave())
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        await waiting
    finally:
        for each in (waiting, leaving):
            each.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)


async def explain(asked: RequestContext) -> Why:
    return await why(asked.number("run_id"), asked.store)


async def export(asked: RequestContext) -> Any:
    run_id = asked.number("run_id")
    # What is not there is said before the answer begins.
    await runs.workflow_of(await asked.store.ready(), run_id)
    return Document(asked, export_pieces(asked.store, run_id), JSON)


async def children(asked: RequestContext) -> Any:
    run_id = asked.number("run_id")
    await runs.workflow_of(await asked.store.ready(), run_id)
    return await _page(asked, RunFilter(parent_run_id=run_id, deleted=None))


async def forbidden(asked: RequestContext, run_id: int, error: Exception) -> Problem:
    """An error about a run, with what it is now and what may be done to it: what draws the buttons says so, too."""
    row = await runs.get(await asked.store.ready(), run_id)
    problem = problem_of(error)
    problem.more |= {
        "current_status": row.status.value,
        "allowed_actions": list(actions_of(row)),
    }
    return problem


RUN = f"{API}/runs/{{run_id}}"

ENDPOINTS = (
    Endpoint(
        "POST",
        f"{API}/runs",
        trigger,
        Scope.TRIGGER,
        "Trigger a run; with an idempotency key that is taken, the run that has it (200)",
        takes=NewRun,
        gives=TriggeredRun,
        status=201,
        headers=(("Idempotency-Key", "As `idempotency_key` in the body"),),
    ),
    Endpoint(
        "GET",
        f"{API}/runs",
        find,
        Scope.READ,
        "Find runs, newest first",
        query=RunsAsked,
        gives=Items(RunSummary, paged=True),
    ),
    Endpoint("GET", RUN, get, Scope.READ, "All about a run", gives=RunRow),
    Endpoint(
        "GET",
        f"{RUN}/steps",
        steps,
        Scope.READ,
        "What is recorded of its steps, in the order in which they were recorded",
        query=StepsAsked,
        gives=Items(StepRow, paged=True),
    ),
    Endpoint(
        "GET",
        f"{RUN}/events",
        events,
        Scope.READ,
        "What happened to it, oldest first; the last one's event_id as `after` pages on",
        query=EventsAsked,
        gives=Items(Event),
    ),
    Endpoint(
        "GET",
        f"{RUN}/result",
        result,
        Scope.READ,
        "What it returned; 202 while it goes on, 409 when it failed or was cancelled, 410 when it was deleted",
        query=ResultAsked,
        gives=Any,
        meanwhile=Unfinished,
        seconds=MOST_WAIT_SECONDS + 10,
    ),
    Endpoint("GET", f"{RUN}/why", explain, Scope.READ, "Why it does not move, and what to do", gives=Why),
    Endpoint(
        "GET",
        f"{RUN}/export",
        export,
        Scope.READ,
        "A run as a document, for people and for replay",
        gives=dict,
        answer_seconds=DOWNLOAD_SECONDS,
    ),
    Endpoint(
        "GET",
        f"{RUN}/children",
        children,
        Scope.READ,
        "The runs that it spawned, newest first",
        query=ChildrenAsked,
        gives=Items(RunSummary, paged=True),
    ),
)
