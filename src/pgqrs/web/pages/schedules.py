"""Schedules: what is triggered when; the next slots, what became of the last ones, pause and trigger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from pgqrs.api.schedules import schedules
from pgqrs.db.tables import schedules as table
from pgqrs.errors import ConfigError
from pgqrs.text.durations import format_duration
from pgqrs.types import Schedule
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.confirm import Confirmation, PageAction, endpoints_of
from pgqrs.web.pages.rendering import render
from pgqrs.web.pagination import GLIMPSE
from pgqrs.web.routing import Endpoint, RequestContext

SHOWN_SLOTS = 30
SHOWN = 1_000


async def show_all(asked: RequestContext) -> Response:
    found = await table.list_all(await asked.store.ready(), limit=SHOWN, cut=GLIMPSE)
    return await render(
        asked,
        "schedules.html",
        here="schedules",
        schedules=[(each, cadence(each)) for each in found],
        page_actions=_DEEDS,
    )


async def show(asked: RequestContext) -> Response:
    found = schedules(asked.store)
    name = asked.path("name")
    schedule = await found.get(name)
    unreadable = None
    try:
        upcoming = await found.next(name, 5)
    except ConfigError as error:
        # The row was changed by hand, or this machine lacks its time zone: the rest of the page is there.
        upcoming, unreadable = [], str(error)
    return await render(
        asked,
        "schedule.html",
        here="schedules",
        schedule=schedule,
        cadence=cadence(schedule),
        upcoming=upcoming,
        unreadable=unreadable,
        slots=await found.slots(name, SHOWN_SLOTS),
        page_actions=_DEEDS,
    )


def cadence(schedule: Schedule) -> str:
    """When it fires, in words."""
    if schedule.cron is not None:
        return f"{schedule.cron} ({schedule.timezone})"
    if schedule.every_seconds is not None:
        return f"every {format_duration(schedule.every_seconds)}"
    return "once"


def _asking(sentence: str, *facts: str) -> Callable[[RequestContext], Awaitable[Confirmation]]:
    async def ask(asked: RequestContext) -> Confirmation:
        schedule = await schedules(asked.store).get(asked.path("name"))
        return Confirmation(sentence.format(schedule.name, schedule.workflow), facts)

    return ask


async def _pause(asked: RequestContext) -> None:
    await schedules(asked.store).pause(asked.path("name"))


async def _resume(asked: RequestContext) -> None:
    await schedules(asked.store).resume(asked.path("name"))


async def _trigger(asked: RequestContext) -> None:
    await schedules(asked.store).trigger(asked.path("name"), actor=asked.actor)


_PAGE = "/schedules/{name}"
_DEEDS = {
    "pause": PageAction(
        "schedule.pause", _PAGE, "Pause",
        _asking("Pause schedule {}?", "Nothing is triggered until it is resumed; runs that were triggered go on."),
        _pause,
    ),
    "resume": PageAction(
        "schedule.resume", _PAGE, "Resume",
        _asking("Let schedule {} go on?", "It goes on with the next slot; what passed meanwhile is not made up for."),
        _resume,
    ),
    "trigger": PageAction(
        "schedule.trigger", _PAGE, "Trigger now",
        _asking("Start a run of {1} now, as schedule {0} would?", "Beside its slots: those stay as they are."),
        _trigger, scope=Scope.TRIGGER,
    ),
}  # fmt: skip

ENDPOINTS = (
    Endpoint("GET", "/schedules", show_all, Scope.READ, "Schedules", page=True),
    Endpoint("GET", "/schedules/{name}", show, Scope.READ, "A schedule", page=True),
    *endpoints_of(list(_DEEDS.values()), here="schedules"),
)
