"""Runs: found by the grammar of filters, a page at a time; and something done to many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from pgqrs.api.operations.admin import admin
from pgqrs.api.operations.run_actions import act
from pgqrs.api.operations.search import SummaryPage
from pgqrs.db.views import run_details
from pgqrs.db.views.run_details import RunProgress
from pgqrs.errors import ConfigError, InvalidTransition, NotFound
from pgqrs.filters import RunFilter
from pgqrs.reports import BulkReason, BulkResult, CappedCount
from pgqrs.types import RunStatus, RunSummary
from pgqrs.web import pagination
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.confirm import LONG_SECONDS, text, texts
from pgqrs.web.pages.rendering import brief, parameter, render, see
from pgqrs.web.problems import Problem
from pgqrs.web.routing import Endpoint, RequestContext

PAGE = 50
# What can be done to many at once.
VERBS = {"restart": "Restart", "cancel": "Cancel", "delete": "Delete"}
_SINCE = ("15m", "1h", "24h", "7d")


@dataclass(frozen=True, slots=True)
class RunListRow:
    """A run as the list shows it."""

    run: RunSummary
    glimpse: RunProgress
    reason: str


async def show(asked: RequestContext) -> Response:
    query = parameter(asked, "q").strip()
    if query.removeprefix("#").isdecimal() and query.isascii():
        return see(asked, "/runs/{}", query.removeprefix("#"))
    found: SummaryPage = SummaryPage()
    wanted, error = RunFilter(), None
    try:
        wanted = RunFilter.parse(query)
        found = await pagination.runs(asked.store, wanted, limit=PAGE, cursor=parameter(asked, "cursor") or None)
    except (ConfigError, NotFound) as problem:
        error = str(problem)
    return await render(
        asked,
        "runs.html",
        here="runs",
        query=query,
        error=error,
        chips=_chips(wanted),
        since=_since(wanted),
        runs=await listed(asked, found),
        next_cursor=found.next_cursor,
        is_first=not parameter(asked, "cursor"),
        verbs=VERBS,
    )


async def listed(asked: RequestContext, found: Sequence[RunSummary]) -> list[RunListRow]:
    seen = await run_details.of_runs(await asked.store.ready(), [(run.run_id, run.workflow) for run in found])
    return [
        RunListRow(run, seen.get(run.run_id, RunProgress()), reason(run, seen.get(run.run_id, RunProgress())))
        for run in found
    ]


def reason(run: RunSummary, glimpse: RunProgress) -> str:  # noqa: PLR0911 - a status, a line
    """Why it is as it is, in a few words."""
    due = glimpse.due_in_seconds
    if run.deleted_at is not None:
        return f"deleted: {run.delete_reason}" if run.delete_reason else "deleted"
    match run.status:
        case RunStatus.SUCCESS:
            return ""
        case RunStatus.ERROR | RunStatus.CANCELLED:
            return run.last_error or ""
        case RunStatus.PAUSED:
            return f"waits: {run.waiting_for}" if run.waiting_for else "waits"
    if run.last_error and due is not None and due > 0 and glimpse.holder is None:
        return f"again in {brief(due)}: {run.last_error}"
    if glimpse.holder is not None:
        return f"at {glimpse.holder}" if due is None or due > 0 else f"lease of {glimpse.holder} ran out"
    return f"begins in {brief(due)}" if due is not None and due > 0 else "ready"


def _chips(wanted: RunFilter) -> list[dict[str, Any]]:
    """A filter for each status: with it, or without it where it is there."""
    found = []
    for status in RunStatus:
        chosen = status in wanted.statuses
        rest = [each for each in wanted.statuses if each is not status]
        changed = wanted.with_changes(status=rest if chosen else [*rest, status])
        found.append({"status": status, "chosen": chosen, "q": str(changed)})
    return found


def _since(wanted: RunFilter) -> list[dict[str, Any]]:
    found = []
    for word in _SINCE:
        moment = RunFilter.parse(f"since:{word}").created_after
        chosen = wanted.created_after == moment
        changed = wanted.with_changes(created_after=None if chosen else moment)
        found.append({"word": word, "chosen": chosen, "q": str(changed)})
    return found


# -- many at once ----------------------------------------------------------------------------------------


async def ask_many(asked: RequestContext) -> Response:
    """How many it would be, and whether that is meant."""
    given = asked.request.query_params
    verb, ids = _verb(parameter(asked, "verb")), given.getlist("run")
    if parameter(asked, "which") == "all":
        query = parameter(asked, "q")
        try:
            planned = await _bulk(asked, verb, query, dry_run=True)
        except (ConfigError, NotFound) as problem:
            raise Problem(422, "bad-filter", str(problem)) from None
        return await _asked(asked, verb, planned.matched, planned.run_ids, query=query, ids=[])
    if not ids:
        raise Problem(422, "nothing-chosen", "no run was ticked", hint="tick some, or choose all that match")
    numbers = _numbers(ids)
    return await _asked(asked, verb, CappedCount(len(numbers), capped=False), numbers, query=None, ids=numbers)


async def _asked(
    asked: RequestContext,
    verb: str,
    matched: CappedCount,
    shown: Sequence[int],
    *,
    query: str | None,
    ids: Sequence[int],
) -> Response:
    return await render(
        asked,
        "bulk.html",
        here="runs",
        verb=verb,
        word=VERBS[verb],
        matched=matched,
        shown=shown,
        query=query,
        ids=ids,
        back=parameter(asked, "back"),
        result=None,
    )


async def do_many(asked: RequestContext) -> Response:
    verb, query = _verb(text(asked, "verb") or ""), text(asked, "q")
    if text(asked, "which") == "all":
        result = await _bulk(asked, verb, query or "", dry_run=False, reason=text(asked, "reason"))
    else:
        result = await _each(asked, verb, _numbers(texts(asked, "run")), reason=text(asked, "reason"))
    return await render(
        asked,
        "bulk.html",
        here="runs",
        verb=verb,
        word=VERBS[verb],
        matched=result.matched,
        shown=result.run_ids,
        query=query,
        ids=[],
        back=text(asked, "back") or "",
        result=result,
    )


async def _bulk(
    asked: RequestContext, verb: str, query: str, *, dry_run: bool, reason: str | None = None
) -> BulkResult:
    """Those of a filter; an empty one was meant: the form says that it takes all."""
    does = {"restart": "restart_runs", "cancel": "cancel_runs", "delete": "delete_runs"}[verb]
    more = {} if verb == "restart" else {"reason": reason}
    found: BulkResult = await getattr(admin(asked.store), does)(
        RunFilter.parse(query),
        dry_run=dry_run,
        everything=True,
        actor=asked.actor,
        on_progress=asked.progress,
        **more,
    )
    return found


async def _each(asked: RequestContext, verb: str, ids: Sequence[int], *, reason: str | None) -> BulkResult:
    """Those that were ticked, one by one; what is refused is told."""
    more = {} if verb == "restart" else {"reason": reason}
    refused = []
    for run_id in ids:
        try:
            await act(asked.store, run_id, verb, actor=asked.actor, **more)
        except (InvalidTransition, NotFound) as error:
            refused.append(BulkReason(run_id, "skipped", str(error)))
        asked.progress(1)
    return BulkResult(
        verb,
        dry_run=False,
        matched=CappedCount(len(ids), capped=False),
        run_ids=tuple(ids),
        done=len(ids) - len(refused),
        skipped=len(refused),
        reasons=tuple(refused),
    )


def _verb(given: str) -> str:
    if given not in VERBS:
        raise Problem(422, "bad-request", f"many runs can be {', '.join(VERBS)}ed, not {given!r}")
    return given


def _numbers(given: Sequence[str]) -> list[int]:
    if not all(each.isdecimal() and each.isascii() and len(each) <= 18 for each in given):
        raise Problem(422, "bad-request", "a run is named by its number")
    return [int(each) for each in given]


ENDPOINTS = (
    Endpoint("GET", "/runs", show, Scope.READ, "Runs", page=True),
    Endpoint("GET", "/runs/bulk", ask_many, Scope.READ, "How many a bulk action would take", page=True),
    Endpoint("POST", "/runs/bulk", do_many, Scope.OPERATE, "A bulk action", page=True, seconds=LONG_SECONDS),
)
