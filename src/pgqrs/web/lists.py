"""Lists that the API and the dashboard turn page by page: what is dead, and what is still to be published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from pgqrs.api.admin import admin
from pgqrs.api.cursors import from_cursor, to_cursor
from pgqrs.api.store import Store
from pgqrs.clock import EPOCH, from_microseconds, microseconds
from pgqrs.errors import ConfigError
from pgqrs.types import DeadLetter, OutboxEvent

Thing = TypeVar("Thing", DeadLetter, OutboxEvent)


class Listed(NamedTuple):
    """A page, and where the next one begins; None when this is the last."""

    page: Sequence[DeadLetter | OutboxEvent]
    next_cursor: str | None


async def dead_letters(store: Store, queue: str, *, limit: int, cursor: str | None) -> Listed:
    """Of a queue, longest dead first."""
    after = None
    if cursor is not None:
        since, message_id = _time_and_id(cursor)
        # What stands for the last of the page before: only where it stands matters.
        after = DeadLetter(message_id, queue, "null", 0, 0, 0, since, since)
    found = await admin(store).dead_letters(queue, limit=limit + 1, after=after)
    return _cut(found, limit, lambda last: _cursor(last.dead_since, last.id))


async def dead_events(store: Store, *, limit: int, cursor: str | None) -> Listed:
    """Of the outbox, longest dead first."""
    after = None
    if cursor is not None:
        since, event_id = _time_and_id(cursor)
        after = _event(0, event_id, since)
    found = await admin(store).outbox.dead(limit=limit + 1, after=after)
    return _cut(found, limit, lambda last: _cursor(last.dead_at or EPOCH, last.event_id))


async def unpublished(store: Store, *, limit: int, cursor: str | None) -> Listed:
    """Of the outbox, by run and in its order."""
    after = None
    if cursor is not None:
        run_id, event_id = from_cursor(cursor, 2)
        after = _event(run_id, event_id, EPOCH)
    found = await admin(store).outbox.unpublished(limit=limit + 1, after=after)
    return _cut(found, limit, lambda last: to_cursor(last.run_id, last.event_id))


def _event(run_id: int, event_id: int, dead_at: datetime) -> OutboxEvent:
    return OutboxEvent("", "", "", run_id, "", "null", EPOCH, 0, None, None, dead_at, event_id)


def _cut(found: list[Thing], limit: int, cursor: Callable[[Thing], str]) -> Listed:
    page = found[:limit]
    return Listed(page, cursor(page[-1]) if len(found) > limit else None)


def _cursor(since: datetime, number: int) -> str:
    return to_cursor(microseconds(since), number)


def _time_and_id(cursor: str) -> tuple[datetime, int]:
    moment, number = from_cursor(cursor, 2)
    try:
        return from_microseconds(moment), number
    except OverflowError:
        raise ConfigError("this cursor is of another list") from None
