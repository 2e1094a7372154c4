"""Inbox: runs that wait for somebody's yes, no or data."""

from __future__ import annotations

from starlette.responses import Response

from pgqrs.filters import RunFilter
from pgqrs.types import RunStatus, RunSummary
from pgqrs.web import pagination
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.rendering import parameter, render
from pgqrs.web.pages.run_actions import Open, waits_of
from pgqrs.web.routing import Endpoint, RequestContext

SHOWN = 50
# Waiting runs may be asleep or wait for children: so many are looked at for those that wait for somebody.
_LOOKED_AT, _AT_ONCE = 400, 100


async def show(asked: RequestContext) -> Response:
    cursor: str | None = parameter(asked, "cursor") or None
    found: list[tuple[RunSummary, Open]] = []
    looked = 0
    wanted = RunFilter(status=RunStatus.PAUSED)
    while len(found) < SHOWN and looked < _LOOKED_AT:
        page = await pagination.runs(asked.store, wanted, limit=_AT_ONCE, cursor=cursor)
        by_id = {run.run_id: run for run in page}
        found += [(by_id[wait.run_id], wait) for wait in await waits_of(asked, list(by_id))]
        looked += len(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    return await render(
        asked,
        "inbox.html",
        here="inbox",
        waiting=found,
        looked=looked,
        next_cursor=cursor,
        is_first=not parameter(asked, "cursor"),
    )


ENDPOINTS = (Endpoint("GET", "/inbox", show, Scope.READ, "Runs that wait for somebody", page=True),)
