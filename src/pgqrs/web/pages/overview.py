"""Overview: whether it is healthy and what is not, what is under way, how fast it goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from starlette.responses import Response

from pgqrs.api.operations.admin import admin
from pgqrs.db.views.throughput import Throughput, pulse
from pgqrs.reports import CappedCount, QueueDepth, StoreStats
from pgqrs.types import RunStatus
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.charts import latency, throughput
from pgqrs.web.pages.rendering import brief, count, lately, number, render
from pgqrs.web.routing import Endpoint, RequestContext

# A queue whose oldest message has been ready for longer than this is behind.
_BEHIND_SECONDS = 300.0
# More than one in ten that ended lately failed.
_MANY_FAILED = 0.1
_SHOWN_QUEUES = 8
_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is not as it should be, and the page that says more."""

    sentence: str
    path: str
    query: dict[str, str]
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    word: str
    count: CappedCount
    # What it links to: the runs in this status.
    status: RunStatus
    note: str


async def show(asked: RequestContext) -> Response:
    stats = await admin(asked.store).stats()
    beat = await pulse(await asked.store.ready())
    troubles = list(_troubles(stats, beat))
    waiting = [each for each in stats.queues if each.ready or each.dead or each.leased or each.scheduled]
    oldest = sorted(waiting, key=lambda each: -(each.oldest_ready_age_seconds or 0.0))[:_SHOWN_QUEUES]
    return await render(
        asked,
        "overview.html",
        here="overview",
        stats=stats,
        tiles=_tiles(stats, beat),
        troubles=troubles,
        bad=any(each.is_bad for each in troubles),
        pulse=beat,
        throughput=throughput(beat),
        latency=latency(beat),
        window=lately(beat.window_seconds),
        oldest=oldest,
        runs=[(status, number) for status, number in stats.runs.items() if number.count],
        is_empty=not stats.queues,
    )


def _tiles(stats: StoreStats, beat: Throughput) -> list[Tile]:
    """The four numbers that one looks at first."""
    ready = CappedCount(sum(each.ready for each in stats.queues), any(each.capped for each in stats.queues))
    failed = CappedCount(sum(beat.failed), beat.capped)
    return [
        Tile("Ready", ready, RunStatus.PENDING, "could be worked on now"),
        Tile("Running", stats.runs[RunStatus.RUNNING], RunStatus.RUNNING, "at a worker"),
        Tile("Waiting", stats.runs[RunStatus.PAUSED], RunStatus.PAUSED, "asleep, or for somebody"),
        Tile("Failed", failed, RunStatus.ERROR, f"in the last {lately(beat.window_seconds)}"),
    ]


def _troubles(stats: StoreStats, beat: Throughput) -> Iterator[Trouble]:
    """The worst first."""
    ready = [each for each in stats.queues if each.ready and not each.paused]
    if ready and not stats.workers.ready:
        many = number(sum(each.ready for each in ready))
        yield Trouble(f"{many} ready, and no worker is there", "/workers", {}, is_bad=True)
    ended = sum(beat.succeeded) + sum(beat.failed)
    failed = sum(beat.failed)
    if failed and failed > ended * _MANY_FAILED:
        sentence = f"{number(failed)} of {number(ended)} runs failed in the last {lately(beat.window_seconds)}"
        yield Trouble(sentence, "/failures", {"since": "1h"}, is_bad=True)
    behind = [each for each in ready if (each.oldest_ready_age_seconds or 0) > _BEHIND_SECONDS]
    if behind:
        worst = max(behind, key=lambda each: each.oldest_ready_age_seconds or 0)
        age = brief(worst.oldest_ready_age_seconds or 0)
        yield Trouble(f"{_named(behind)} behind: the oldest has been ready for {age}", "/queues", {}, is_bad=True)
    if stats.workers.stale:
        yield Trouble(f"{_many(stats.workers.stale, 'worker')} gone without a word", "/workers", {})
    dead = [each for each in stats.queues if each.dead]
    if dead:
        letters = sum(each.dead for each in dead)
        yield Trouble(f"{number(letters)} dead letter{'s' * (letters != 1)} in {_names(dead)}", "/queues", {})
    if stats.outbox.dead.count:
        yield Trouble(f"{count(stats.outbox.dead)} outbox events were given up", "/outbox", {})
    paused = [each for each in stats.queues if each.paused]
    if paused:
        yield Trouble(f"{_named(paused)} paused", "/queues", {})


def _many(how_many: int, noun: str) -> str:
    return f"{how_many} {noun} is" if how_many == 1 else f"{how_many} {noun}s are"


def _names(queues: list[QueueDepth]) -> str:
    more = len(queues) - _SHOWN_NAMES
    return ", ".join(each.queue for each in queues[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _named(queues: list[QueueDepth]) -> str:
    return f"queue {queues[0].queue} is" if len(queues) == 1 else f"queues {_names(queues)} are"


ENDPOINTS = (Endpoint("GET", "/", show, Scope.READ, "Overview", page=True),)
