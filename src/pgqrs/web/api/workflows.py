"""Workflows and workers: what there is to run, and who runs it."""

from __future__ import annotations

from typing import Any

from pgqrs.api.operations.admin import admin
from pgqrs.api.operations.workflow_list import WorkflowLine, pause_workflow, resume_workflow, workflow_lines
from pgqrs.reports import WorkflowMetrics
from pgqrs.text.durations import parse_duration
from pgqrs.types import WorkerInfo
from pgqrs.web import pagination
from pgqrs.web.api.shapes import API, Counted, ListAsked, Name, RequestShape
from pgqrs.web.auth.access import Scope
from pgqrs.web.routing import Endpoint, Items, Reply, RequestContext, items


class NewWorkflow(RequestShape):
    """`dead_letter` names a workflow that gets a run whenever one of this one's ends in ERROR."""

    name: Name
    dead_letter: str | None = None


class Window(RequestShape):
    """How far back to look: 15m, 1h, 7d."""

    window: str = "1h"


class WorkersAsked(ListAsked):
    queue: Name | None = None


async def find(asked: RequestContext) -> Any:
    query: ListAsked = asked.query
    found = await workflow_lines(asked.store, limit=query.limit + 1, after=pagination.name_after(query.cursor))
    more, cut = pagination.next_by_name(found, query.limit, "workflow"), pagination.cut_for(query.limit, texts=2)
    return items(found[: query.limit], cut=cut, next_cursor=more)


async def get(asked: RequestContext) -> WorkflowMetrics:
    return await admin(asked.store).workflow_metrics(asked.path("workflow"))


async def metrics(asked: RequestContext) -> WorkflowMetrics:
    return await admin(asked.store).workflow_metrics(
        asked.path("workflow"), window=parse_duration(asked.query.window)
    )


async def create(asked: RequestContext) -> Reply:
    given: NewWorkflow = asked.body
    dead_letter = {} if given.dead_letter is None else {"dead_letter": given.dead_letter}
    await asked.store.create_workflow(given.name, **dead_letter)
    where = asked.url(f"{API}/workflows/{given.name}")
    return Reply(await admin(asked.store).workflow_metrics(given.name), 201, {"location": where})


async def pause(asked: RequestContext) -> WorkflowMetrics:
    await pause_workflow(asked.store, asked.path("workflow"))
    return await get(asked)


async def resume(asked: RequestContext) -> WorkflowMetrics:
    await resume_workflow(asked.store, asked.path("workflow"))
    return await get(asked)


async def find_workers(asked: RequestContext) -> Any:
    """What a worker says of itself in more characters than fit is left out, which `truncated` says."""
    query: WorkersAsked = asked.query
    found = await pagination.workers(asked.store, query.queue, limit=query.limit, cursor=query.cursor)
    listed = items((each.worker for each in found.page), cut=found.cut, next_cursor=found.next_cursor)
    for item, each in zip(listed["items"], found.page, strict=True):
        if each.is_cut:
            item.setdefault("truncated", []).append("info")
    return listed


async def get_worker(asked: RequestContext) -> WorkerInfo:
    return await admin(asked.store).worker(asked.number("worker_id"))


async def stop_worker(asked: RequestContext) -> WorkerInfo:
    return await admin(asked.store).stop_worker(asked.number("worker_id"))


async def release(asked: RequestContext) -> Any:
    await get_worker(asked)
    return {"count": await admin(asked.store).release_worker_messages(asked.number("worker_id"))}


WORKFLOW = f"{API}/workflows/{{workflow}}"
WORKER = f"{API}/workers/{{worker_id}}"

ENDPOINTS = (
    Endpoint(
        "GET",
        f"{API}/workflows",
        find,
        Scope.READ,
        "Workflows by name, with their runs that have not ended",
        query=ListAsked,
        gives=Items(WorkflowLine, paged=True),
    ),
    Endpoint(
        "POST",
        f"{API}/workflows",
        create,
        Scope.OPERATE,
        "Make its definition and its queue; those that are there stay as they are",
        takes=NewWorkflow,
        gives=WorkflowMetrics,
        status=201,
    ),
    Endpoint(
        "GET", WORKFLOW, get, Scope.READ, "How it fares: counts, rates, durations, queue", gives=WorkflowMetrics
    ),
    Endpoint(
        "GET",
        f"{WORKFLOW}/metrics",
        metrics,
        Scope.READ,
        "The same over another time than the last hour",
        query=Window,
        gives=WorkflowMetrics,
    ),
    Endpoint(
        "POST",
        f"{WORKFLOW}/pause",
        pause,
        Scope.OPERATE,
        "No run of it begins or goes on until it is resumed; what is at work finishes",
        gives=WorkflowMetrics,
    ),
    Endpoint("POST", f"{WORKFLOW}/resume", resume, Scope.OPERATE, "Take its runs up again", gives=WorkflowMetrics),
    Endpoint(
        "GET",
        f"{API}/workers",
        find_workers,
        Scope.READ,
        "Workers, oldest first, with their last heartbeat and their leases",
        query=WorkersAsked,
        gives=Items(WorkerInfo, paged=True),
    ),
    Endpoint("GET", WORKER, get_worker, Scope.READ, "One of them", gives=WorkerInfo),
    Endpoint(
        "POST",
        f"{WORKER}/stop",
        stop_worker,
        Scope.OPERATE,
        "Tell it, wherever it runs, to finish what it has and end; 409 for a consumer of a plain queue",
        gives=WorkerInfo,
    ),
    Endpoint(
        "POST",
        f"{WORKER}/release",
        release,
        Scope.OPERATE,
        "Hand back at once all that it holds: for one that is gone",
        gives=Counted,
    ),
)
