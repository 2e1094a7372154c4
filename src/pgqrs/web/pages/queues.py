"""Queues: what each holds; one with what is taken next, its dead letters, and pause, replay and purge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from pgqrs.api.operations.admin import admin
from pgqrs.db.tables import queues as table
from pgqrs.db.tables import workflows
from pgqrs.db.tables.queues import Queue
from pgqrs.db.views import metrics, run_details
from pgqrs.errors import WorkflowNotFound
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.confirm import LONG_SECONDS, Confirmation, PageAction, endpoints_of
from pgqrs.web.pages.rendering import number, parameter, render
from pgqrs.web.pagination import dead_letters
from pgqrs.web.routing import Endpoint, RequestContext

PAGE = 100
SHOWN_MESSAGES, SHOWN_TEXT = 50, 300


async def show_all(asked: RequestContext) -> Response:
    db = await asked.store.ready()
    after = parameter(asked, "after")
    found = await table.page(db, limit=PAGE + 1, after=after)
    page = found[:PAGE]
    return await render(
        asked,
        "queues.html",
        here="queues",
        queues=await metrics.depths(db, page),
        workflows=await workflows.names_of_queues(db, [each.queue_id for each in page]),
        next_after=page[-1].name if len(found) > PAGE else None,
        is_first=not after,
    )


async def show(asked: RequestContext) -> Response:
    db = await asked.store.ready()
    queue = await _queue(asked)
    [depth] = await metrics.depths(db, [queue])
    dead_after = parameter(asked, "dead")
    return await render(
        asked,
        "queue.html",
        here="queues",
        queue=queue,
        depth=depth,
        is_workflow=await _is_workflow(asked, queue.name),
        messages=await run_details.next_messages(db, queue.queue_id, limit=SHOWN_MESSAGES, cut=SHOWN_TEXT),
        dead=await dead_letters(asked.store, queue.name, limit=SHOWN_MESSAGES, cursor=dead_after or None),
        is_first=not dead_after,
        shown=SHOWN_MESSAGES,
        page_actions=_DEEDS,
    )


async def _queue(asked: RequestContext) -> Queue:
    return await table.get(await asked.store.ready(), asked.path("name"))


async def _is_workflow(asked: RequestContext, name: str) -> bool:
    try:
        await workflows.get(await asked.store.ready(), name)
    except WorkflowNotFound:
        return False
    return True


def _asking(sentence: str, *facts: str) -> Callable[[RequestContext], Awaitable[Confirmation]]:
    async def ask(asked: RequestContext) -> Confirmation:
        return Confirmation(sentence.format((await _queue(asked)).name), facts)

    return ask


async def _ask_purge(asked: RequestContext) -> Confirmation:
    queue = await _queue(asked)
    [depth] = await metrics.depths(await asked.store.ready(), [queue])
    held = depth.ready + depth.scheduled + depth.leased + depth.dead
    many = number(held) + ("+" if depth.capped else "")
    return Confirmation(
        f"Delete {many} messages of queue {queue.name}?",
        ("Those that somebody is working on go, too. Nothing brings them back.",),
    )


async def _ask_replay(asked: RequestContext) -> Confirmation:
    queue = await _queue(asked)
    [depth] = await metrics.depths(await asked.store.ready(), [queue])
    many = number(depth.dead) + ("+" if depth.capped else "")
    return Confirmation(
        f"Let {many} dead letters of queue {queue.name} start anew?", ("Their attempts count from 0.",)
    )


async def _pause(asked: RequestContext) -> None:
    await admin(asked.store).pause_queue((await _queue(asked)).name)


async def _resume(asked: RequestContext) -> None:
    await admin(asked.store).resume_queue((await _queue(asked)).name)


async def _replay(asked: RequestContext) -> None:
    await admin(asked.store).replay((await _queue(asked)).name, on_progress=asked.progress)


async def _purge(asked: RequestContext) -> None:
    await admin(asked.store).purge((await _queue(asked)).name, on_progress=asked.progress)


_PAGE = "/queues/{name}"
_DEEDS = {
    "pause": PageAction(
        "queue.pause", _PAGE, "Pause",
        _asking("Pause queue {}?", "Nothing is taken from it until it is resumed; what is held goes on."), _pause,
    ),
    "resume": PageAction("queue.resume", _PAGE, "Resume", _asking("Let queue {} go on?"), _resume),
    "replay": PageAction("queue.replay", _PAGE, "Replay dead letters", _ask_replay, _replay, seconds=LONG_SECONDS),
    "purge": PageAction(
        "queue.purge", _PAGE, "Purge", _ask_purge, _purge, scope=Scope.ADMIN, is_destructive=True,
        seconds=LONG_SECONDS,
    ),
}  # fmt: skip

ENDPOINTS = (
    Endpoint("GET", "/queues", show_all, Scope.READ, "Queues", page=True),
    Endpoint("GET", "/queues/{name}", show, Scope.READ, "A queue", page=True),
    *endpoints_of(list(_DEEDS.values()), here="queues"),
)
