"""Outbox: what is still to be published, and what was given up."""

from __future__ import annotations

from starlette.responses import Response

from pgqrs.api.operations.admin import admin
from pgqrs.reports import OutboxStats
from pgqrs.web import pagination
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.confirm import LONG_SECONDS, Confirmation, PageAction, endpoints_of
from pgqrs.web.pages.rendering import count, parameter, render
from pgqrs.web.routing import Endpoint, RequestContext

SHOWN = 100


async def show(asked: RequestContext) -> Response:
    of_dead, of_unpublished = parameter(asked, "dead"), parameter(asked, "unpublished")
    return await render(
        asked,
        "outbox.html",
        here="outbox",
        counts=await _counts(asked),
        unpublished=await pagination.unpublished(asked.store, limit=SHOWN, cursor=of_unpublished or None),
        dead=await pagination.dead_events(asked.store, limit=SHOWN, cursor=of_dead or None),
        of_dead=of_dead,
        of_unpublished=of_unpublished,
        replay=REPLAY,
    )


async def _counts(asked: RequestContext) -> OutboxStats:
    """Capped, unlike `admin.outbox.counts`: a million that were published are not counted."""
    return (await admin(asked.store).stats()).outbox


async def _ask_replay(asked: RequestContext) -> Confirmation:
    dead = count((await _counts(asked)).dead)
    return Confirmation(
        f"Let {dead} dead events start anew?", ("They come after what their runs have published meanwhile.",)
    )


async def _replay(asked: RequestContext) -> None:
    await admin(asked.store).outbox.replay(on_progress=asked.progress)


REPLAY = PageAction("outbox.replay", "/outbox", "Replay the dead", _ask_replay, _replay, seconds=LONG_SECONDS)

ENDPOINTS = (
    Endpoint("GET", "/outbox", show, Scope.READ, "Outbox", page=True),
    *endpoints_of([REPLAY], here="outbox"),
)
