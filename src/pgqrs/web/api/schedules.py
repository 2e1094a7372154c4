"""Schedules: what is triggered when."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pgqrs.api.schedules import schedules
from pgqrs.db.tables import schedules as table
from pgqrs.errors import ScheduleNotFound
from pgqrs.types import Schedule, ScheduleSlot
from pgqrs.web import pagination
from pgqrs.web.api.shapes import API, Limit, ListAsked, Name, RequestShape, RunId, Time
from pgqrs.web.auth.access import Scope
from pgqrs.web.routing import Endpoint, Items, Reply, RequestContext, items


class NewSchedule(RequestShape):
    """One of `cron`, `every_seconds` and `at`; `params` is what each run gets."""

    name: Name
    workflow: Name
    cron: str | None = None
    every_seconds: float | None = None
    at: Time | None = None
    timezone: str = "UTC"
    params: Any = None
    overlap: Literal["skip", "queue", "cancel", "allow"] = "skip"
    catch_up: Literal["none", "last", "all"] = "last"
    catch_up_limit: int = 100
    jitter_seconds: float = 0.0
    priority: int = 0
    max_attempts: int | None = None
    attributes: dict[str, Any] | None = None


class ScheduleResumption(RequestShape):
    """`catch_up`: its catch-up policy makes up for the pause."""

    catch_up: bool = False


class NextAsked(RequestShape):
    count: Limit = 5


class SlotsAsked(RequestShape):
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50


class NextSlot(RequestShape):
    slot_at: Time


async def find(asked: RequestContext) -> Any:
    query: ListAsked = asked.query
    cut = pagination.cut_for(query.limit, texts=3)
    db = await asked.store.ready()
    found = await table.list_all(db, limit=query.limit + 1, after=pagination.name_after(query.cursor), cut=cut + 1)
    return items(found[: query.limit], cut=cut, next_cursor=pagination.next_by_name(found, query.limit, "name"))


async def get(asked: RequestContext) -> Schedule:
    return await schedules(asked.store).get(asked.path("schedule"))


async def create(asked: RequestContext) -> Reply:
    given: NewSchedule = asked.body
    ours = schedules(asked.store)
    try:
        await ours.get(given.name)
        status = 200
    except ScheduleNotFound:
        status = 201
    made = await ours.create(
        given.name,
        given.workflow,
        cron=given.cron,
        every=given.every_seconds,
        at=given.at,
        timezone=given.timezone,
        params=given.params,
        overlap=given.overlap,
        catch_up=given.catch_up,
        catch_up_limit=given.catch_up_limit,
        jitter=given.jitter_seconds,
        priority=given.priority,
        max_attempts=given.max_attempts,
        attributes=given.attributes,
    )
    return Reply(made, status, {"location": asked.url(f"{API}/schedules/{made.name}")})


async def pause(asked: RequestContext) -> Schedule:
    await schedules(asked.store).pause(asked.path("schedule"))
    return await get(asked)


async def resume(asked: RequestContext) -> Schedule:
    await schedules(asked.store).resume(asked.path("schedule"), catch_up=asked.body.catch_up)
    return await get(asked)


async def trigger(asked: RequestContext) -> Reply:
    run_id = await schedules(asked.store).trigger(asked.path("schedule"), actor=asked.actor)
    return Reply({"run_id": run_id}, 201, {"location": asked.url(f"{API}/runs/{run_id}")})


async def next_slots(asked: RequestContext) -> Any:
    found = await schedules(asked.store).next(asked.path("schedule"), asked.query.count)
    return items({"slot_at": each} for each in found)


async def slots(asked: RequestContext) -> Any:
    return items(await schedules(asked.store).slots(asked.path("schedule"), asked.query.limit))


async def delete(asked: RequestContext) -> Schedule:
    gone = await get(asked)
    await schedules(asked.store).delete(gone.name)
    return gone


SCHEDULE = f"{API}/schedules/{{schedule}}"

ENDPOINTS = (
    Endpoint(
        "GET",
        f"{API}/schedules",
        find,
        Scope.READ,
        "Every schedule, by name",
        query=ListAsked,
        gives=Items(Schedule, paged=True),
    ),
    Endpoint(
        "POST",
        f"{API}/schedules",
        create,
        Scope.OPERATE,
        "Make a schedule, or change the one of that name to be so (200)",
        takes=NewSchedule,
        gives=Schedule,
        status=201,
    ),
    Endpoint("GET", SCHEDULE, get, Scope.READ, "All about a schedule", gives=Schedule),
    Endpoint(
        "DELETE",
        SCHEDULE,
        delete,
        Scope.ADMIN,
        "Remove it with its history; runs that it triggered go on. Answers with what it was",
        gives=Schedule,
    ),
    Endpoint(
        "POST", f"{SCHEDULE}/pause", pause, Scope.OPERATE, "Trigger nothing until it is resumed", gives=Schedule
    ),
    Endpoint(
        "POST",
        f"{SCHEDULE}/resume",
        resume,
        Scope.OPERATE,
        "Go on with the next slot",
        takes=ScheduleResumption,
        gives=Schedule,
    ),
    Endpoint(
        "POST",
        f"{SCHEDULE}/trigger",
        trigger,
        Scope.TRIGGER,
        "A run now, beside its slots",
        gives=RunId,
        status=201,
    ),
    Endpoint(
        "GET",
        f"{SCHEDULE}/next",
        next_slots,
        Scope.READ,
        "When it is due next",
        query=NextAsked,
        gives=Items(NextSlot),
    ),
    Endpoint(
        "GET",
        f"{SCHEDULE}/slots",
        slots,
        Scope.READ,
        "What became of its latest slots, newest first",
        query=SlotsAsked,
        gives=Items(ScheduleSlot),
    ),
)
