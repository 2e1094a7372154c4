"""The store as a whole: outbox, failures, numbers."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from pgqrs.api.operations.admin import admin
from pgqrs.filters import filter_of
from pgqrs.reports import DoctorReport, FailureGroup, OutboxCounts, StoreStats
from pgqrs.types import OutboxEvent
from pgqrs.web import pagination
from pgqrs.web.api.shapes import API, MOST_PER_PAGE, Counted, Ids, Limit, RequestShape
from pgqrs.web.auth.access import Scope
from pgqrs.web.problems import Problem
from pgqrs.web.routing import Endpoint, Items, RequestContext, items

# Batch after batch; a second call goes on.
REPLAY_SECONDS = 300.0


class OutboxAsked(RequestShape):
    limit: Limit = 100
    cursor: str | None = None


class EventReplay(RequestShape):
    """Those events, by their `event_id`; all that are dead when none is named."""

    ids: Ids | None = None


class FailuresAsked(RequestShape):
    """`since`: 24h, 7d, or a time."""

    since: str = "24h"
    limit: Limit = 100


async def unpublished(asked: RequestContext) -> Any:
    return await _events(asked, pagination.unpublished)


async def dead(asked: RequestContext) -> Any:
    return await _events(asked, pagination.dead_events)


async def _events(asked: RequestContext, listed: Callable[..., Awaitable[pagination.Page]]) -> Any:
    cut = pagination.cut_for(asked.query.limit, texts=2)
    found = await listed(asked.store, limit=asked.query.limit, cursor=asked.query.cursor, cut=cut + 1)
    return items(found.page, cut=cut, next_cursor=found.next_cursor)


async def counts(asked: RequestContext) -> OutboxCounts:
    return await admin(asked.store).outbox.counts()


async def replay(asked: RequestContext) -> Any:
    return {"count": await admin(asked.store).outbox.replay(asked.body.ids, on_progress=asked.progress)}


async def failures(asked: RequestContext) -> Any:
    query: FailuresAsked = asked.query
    since = filter_of(since=query.since).created_after or timedelta(hours=24)
    return items(await admin(asked.store).failures(since=since, limit=query.limit))


async def stats(asked: RequestContext) -> StoreStats:
    """With the first queues and workflows by name only: `/queues` and `/workflows` lead through all of them."""
    found = await admin(asked.store).stats()
    return dataclasses.replace(found, queues=found.queues[:MOST_PER_PAGE], live=found.live[:MOST_PER_PAGE])


async def doctor(asked: RequestContext) -> DoctorReport:
    """Without `--verify`, which reads every row: that is not for a web server."""
    return await admin(asked.store).doctor()


async def metrics(asked: RequestContext) -> Response:
    """What Prometheus scrapes, from the database."""
    try:
        telemetry = importlib.import_module("pgqrs.telemetry")
    except ModuleNotFoundError as error:
        if error.name != "pgqrs.telemetry":
            raise
        raise Problem(404, "not-found", "this version has no metrics") from None
    content_type, text = await telemetry.exposition(asked.store)
    return Response(text, media_type=content_type)


ENDPOINTS = (
    Endpoint(
        "GET",
        f"{API}/outbox",
        unpublished,
        Scope.READ,
        "What is still to be published, by run and in its order",
        query=OutboxAsked,
        gives=Items(OutboxEvent, paged=True),
    ),
    Endpoint(
        "GET",
        f"{API}/outbox/dead",
        dead,
        Scope.READ,
        "What receivers refused too often, longest dead first",
        query=OutboxAsked,
        gives=Items(OutboxEvent, paged=True),
    ),
    Endpoint("GET", f"{API}/outbox/counts", counts, Scope.READ, "How many of each", gives=OutboxCounts),
    Endpoint(
        "POST",
        f"{API}/outbox/replay",
        replay,
        Scope.OPERATE,
        "Let dead events start anew",
        takes=EventReplay,
        gives=Counted,
        seconds=REPLAY_SECONDS,
    ),
    Endpoint(
        "GET",
        f"{API}/failures",
        failures,
        Scope.READ,
        "What failed, grouped by what stays the same in the errors; the most frequent first",
        query=FailuresAsked,
        gives=Items(FailureGroup),
    ),
    Endpoint(
        "GET",
        f"{API}/stats",
        stats,
        Scope.READ,
        "The whole store at a glance, with its first 1,000 queues and workflows",
        gives=StoreStats,
    ),
    Endpoint(
        "GET",
        f"{API}/doctor",
        doctor,
        Scope.READ,
        "What is well and what is not, with the command that mends it",
        gives=DoctorReport,
    ),
    Endpoint(
        "GET",
        "/metrics",
        metrics,
        Scope.READ,
        "What Prometheus scrapes, from the database",
        gives=str,
        media="text/plain",
    ),
)
