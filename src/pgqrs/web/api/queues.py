"""Queues: what waits, what is dead, and sending."""

from __future__ import annotations

from typing import Any

from pgqrs.api.operations.admin import admin
from pgqrs.api.operations.queue_peek import peek as looked_into
from pgqrs.db.tables import queues as table
from pgqrs.db.views import metrics
from pgqrs.reports import QueueDepth, QueueMetrics
from pgqrs.types import DeadLetter, QueuedMessage
from pgqrs.web import pagination
from pgqrs.web.api.shapes import API, Counted, Ids, Limit, ListAsked, Name, RequestShape, Time
from pgqrs.web.auth.access import Scope
from pgqrs.web.routing import Endpoint, Items, Reply, RequestContext, items

# Batch after batch: what was deleted when the time is up is deleted, and a second call goes on.
PURGE_SECONDS = 300.0


class NewQueue(RequestShape):
    name: Name


class MessageToSend(RequestShape):
    """A message to be: `payload` is any JSON."""

    payload: Any = None
    run_at: Time | None = None
    delay_seconds: float = 0.0
    priority: int = 0
    max_attempts: int | None = None


class MessageId(RequestShape):
    message_id: int


class Purge(RequestShape):
    """All that waits in it, or with `archived` what is done. `dry_run`, the default, only counts."""

    archived: bool = False
    dry_run: bool = True


class Purged(RequestShape):
    count: int
    dry_run: bool


class MessageReplay(RequestShape):
    """Those messages; all that are dead when none is named."""

    ids: Ids | None = None


class PageAsked(RequestShape):
    limit: Limit = 100
    cursor: str | None = None


class Deletion(RequestShape):
    """`force`: with the messages that it holds."""

    force: bool = False


async def find(asked: RequestContext) -> Any:
    query: ListAsked = asked.query
    db = await asked.store.ready()
    found = await table.page(db, limit=query.limit + 1, after=pagination.name_after(query.cursor))
    more = pagination.next_by_name(found, query.limit, "name")
    cut = pagination.cut_for(query.limit, texts=1)
    return items(await metrics.depths(db, found[: query.limit]), cut=cut, next_cursor=more)


async def get(asked: RequestContext) -> QueueMetrics:
    return await admin(asked.store).queue_metrics(asked.path("queue"))


async def create(asked: RequestContext) -> Reply:
    await asked.store.create_queue(asked.body.name)
    where = asked.url(f"{API}/queues/{asked.body.name}")
    return Reply(await admin(asked.store).queue_metrics(asked.body.name), 201, {"location": where})


async def pause(asked: RequestContext) -> QueueMetrics:
    await admin(asked.store).pause_queue(asked.path("queue"))
    return await get(asked)


async def resume(asked: RequestContext) -> QueueMetrics:
    await admin(asked.store).resume_queue(asked.path("queue"))
    return await get(asked)


async def purge(asked: RequestContext) -> Any:
    given: Purge = asked.body
    if given.dry_run:
        now = await get(asked)
        held = now.ready + now.scheduled + now.leased + now.dead
        return {"count": now.archived if given.archived else held, "dry_run": True}
    count = await admin(asked.store).purge(asked.path("queue"), archived=given.archived, on_progress=asked.progress)
    return {"count": count, "dry_run": False}


async def send(asked: RequestContext) -> Any:
    given: MessageToSend = asked.body
    producer = await asked.store.producer(asked.path("queue"))
    message_id = await producer.enqueue(
        given.payload,
        run_at=given.run_at,
        delay=given.delay_seconds,
        priority=given.priority,
        max_attempts=given.max_attempts,
    )
    return {"message_id": message_id}


async def peek(asked: RequestContext) -> Any:
    query: PageAsked = asked.query
    cut = pagination.cut_for(query.limit, texts=1)
    page = await looked_into(asked.store, asked.path("queue"), limit=query.limit, cursor=query.cursor, cut=cut + 1)
    return items(page, cut=cut, next_cursor=page.next_cursor)


async def dead(asked: RequestContext) -> Any:
    query: PageAsked = asked.query
    cut = pagination.cut_for(query.limit, texts=1)
    found = await pagination.dead_letters(
        asked.store, asked.path("queue"), limit=query.limit, cursor=query.cursor, cut=cut + 1
    )
    return items(found.page, cut=cut, next_cursor=found.next_cursor)


async def replay(asked: RequestContext) -> Any:
    ids, queue = asked.body.ids, asked.path("queue")
    return {"count": await admin(asked.store).replay(queue, ids, on_progress=asked.progress)}


async def delete(asked: RequestContext) -> Any:
    return {"count": await admin(asked.store).delete_queue(asked.path("queue"), force=asked.query.force)}


QUEUE = f"{API}/queues/{{queue}}"

ENDPOINTS = (
    Endpoint(
        "GET",
        f"{API}/queues",
        find,
        Scope.READ,
        "Queues by name, with what each holds",
        query=ListAsked,
        gives=Items(QueueDepth, paged=True),
    ),
    Endpoint(
        "POST",
        f"{API}/queues",
        create,
        Scope.OPERATE,
        "Make a queue; one that is there stays as it is",
        takes=NewQueue,
        gives=QueueMetrics,
        status=201,
    ),
    Endpoint("GET", QUEUE, get, Scope.READ, "What it holds now", gives=QueueMetrics),
    Endpoint(
        "DELETE",
        QUEUE,
        delete,
        Scope.ADMIN,
        "Remove it, with its archive; refused while it holds messages, unless forced",
        query=Deletion,
        gives=Counted,
    ),
    Endpoint(
        "POST", f"{QUEUE}/pause", pause, Scope.OPERATE, "Take nothing from it until it is resumed", gives=QueueMetrics
    ),
    Endpoint("POST", f"{QUEUE}/resume", resume, Scope.OPERATE, "Take it up again", gives=QueueMetrics),
    Endpoint(
        "POST",
        f"{QUEUE}/purge",
        purge,
        Scope.ADMIN,
        "Delete all that waits in it; a dry run unless `dry_run` is false",
        takes=Purge,
        gives=Purged,
        seconds=PURGE_SECONDS,
    ),
    Endpoint(
        "POST",
        f"{QUEUE}/messages",
        send,
        Scope.TRIGGER,
        "Put a message into it",
        takes=MessageToSend,
        gives=MessageId,
        status=201,
    ),
    Endpoint(
        "GET",
        f"{QUEUE}/messages",
        peek,
        Scope.READ,
        "What is in it, in the order in which it would be taken; nothing is taken",
        query=PageAsked,
        gives=Items(QueuedMessage, paged=True),
    ),
    Endpoint(
        "GET",
        f"{QUEUE}/dead",
        dead,
        Scope.READ,
        "Messages that were tried too often, oldest first",
        query=PageAsked,
        gives=Items(DeadLetter, paged=True),
    ),
    Endpoint(
        "POST",
        f"{QUEUE}/replay",
        replay,
        Scope.OPERATE,
        "Let dead messages start anew",
        takes=MessageReplay,
        gives=Counted,
        seconds=PURGE_SECONDS,
    ),
)
