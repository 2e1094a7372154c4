"""Lists that the API and the dashboard turn page by page, and how much of each text a page holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from pgqrs.api.cursors import from_cursor, from_named_cursor, moment_of, of_another_list, to_cursor
from pgqrs.api.operations.search import SummaryPage, page_of
from pgqrs.api.store import Store
from pgqrs.clock import EPOCH, is_in_range
from pgqrs.db.tables import messages, outbox, queues
from pgqrs.db.tables import workers as worker_table
from pgqrs.db.tables.runs import FIRST_STEP, StepPlace
from pgqrs.engine.outbox.dispatcher import source_of
from pgqrs.filters import RunFilter
from pgqrs.text.names import checked_name
from pgqrs.types import DeadLetter, OutboxEvent

Thing = TypeVar("Thing", DeadLetter, OutboxEvent)

# All texts of a page together: three values of the largest size that is taken by default, which is what a step has.
PAGE_CHARACTERS = 3 * 2 * 2**20
# What pages for people need of a text in a list.
GLIMPSE = 1_000
# Of a name, in a cursor: more than any API accepts. A longer one was written past the library.
_MOST_OF_NAME = 500


def cut_for(limit: int, *, texts: int) -> int:
    """How many characters of each text a page of `limit` items holds, with that many texts in each.

    Whoever asks for fewer items sees more of each: `limit=1` shows values whole.
    """
    return PAGE_CHARACTERS // (limit * texts)


async def runs(
    store: Store, wanted: RunFilter, *, limit: int, cursor: str | None = None, cut: int = GLIMPSE
) -> SummaryPage:
    """Newest first."""
    return await page_of(store, wanted, limit=limit, cursor=cursor, cut=cut)


class Page(NamedTuple):
    """A page, and where the next one begins; None when this is the last."""

    page: Sequence[DeadLetter | OutboxEvent]
    next_cursor: str | None


async def dead_letters(store: Store, queue: str, *, limit: int, cursor: str | None, cut: int = GLIMPSE) -> Page:
    """Of a queue, longest dead first."""
    after = None
    if cursor is not None:
        since, message_id = _time_and_id(cursor)
        # What stands for the last of the page before: only where it stands matters.
        after = DeadLetter(message_id, queue, "null", 0, 0, 0, since, since)
    db = await store.ready()
    queue_id = (await queues.get(db, checked_name("queue", queue))).queue_id
    found = await messages.dead_letters(db, queue_id, queue, limit=limit + 1, after=after, cut=cut)
    return _cut(found, limit, lambda last: to_cursor(last.dead_since, last.id))


async def dead_events(store: Store, *, limit: int, cursor: str | None, cut: int = GLIMPSE) -> Page:
    """Of the outbox, longest dead first."""
    after = None
    if cursor is not None:
        since, event_id = _time_and_id(cursor)
        after = _event(0, event_id, since)
    db, source = await store.ready(), source_of(store.config)
    found = await outbox.dead(db, limit=limit + 1, after=after, source=source, cut=cut)
    return _cut(found, limit, lambda last: to_cursor(last.dead_at or EPOCH, last.event_id))


async def unpublished(store: Store, *, limit: int, cursor: str | None, cut: int = GLIMPSE) -> Page:
    """Of the outbox, by run and in its order."""
    after = None
    if cursor is not None:
        run_id, event_id = from_cursor(cursor, 2)
        after = _event(run_id, event_id, EPOCH)
    db, source = await store.ready(), source_of(store.config)
    found = await outbox.unpublished(db, limit=limit + 1, after=after, source=source, cut=cut)
    return _cut(found, limit, lambda last: to_cursor(last.run_id, last.event_id))


class ListedWorkers(NamedTuple):
    page: Sequence[worker_table.ListedWorker]
    next_cursor: str | None
    cut: int


async def workers(store: Store, queue: str | None, *, limit: int, cursor: str | None) -> ListedWorkers:
    """By their ids; of one queue, or all."""
    db, cut = await store.ready(), cut_for(limit, texts=1)
    queue_id = None if queue is None else (await queues.get(db, checked_name("queue", queue))).queue_id
    after = worker_table.FIRST if cursor is None else from_cursor(cursor, 1)[0]
    found = await worker_table.page(db, limit=limit + 1, after=after, cut=cut, queue_id=queue_id)
    page = found[:limit]
    return ListedWorkers(page, to_cursor(page[-1].worker.worker_id) if len(found) > limit else None, cut)


def name_after(cursor: str | None) -> str:
    """Behind which name a page begins, in a list by name; "" for the first."""
    # No name has a NUL in it, which PostgreSQL would refuse.
    return "" if cursor is None else from_named_cursor(cursor, 0)[0].replace("\0", "")


def next_by_name(found: Sequence[object], limit: int, field: str) -> str | None:
    """Where the next page of a list by that field begins; `found` holds one more than this page, if there is one."""
    return to_cursor(name=_placed(getattr(found[limit - 1], field))) if len(found) > limit else None


def _placed(name: str) -> str:
    """Return a text that has the place of the name, and fits into a cursor.

    For a name that is too long it is the place behind all names that begin with the same characters: names are in the
    order of their code points, and the last one that there is ends the text.
    """
    return name if len(name) <= _MOST_OF_NAME else name[:_MOST_OF_NAME] + chr(sys.maxunicode)


def _event(run_id: int, event_id: int, dead_at: datetime) -> OutboxEvent:
    return OutboxEvent("", "", "", run_id, "", "null", EPOCH, 0, None, None, dead_at, event_id)


def _cut(found: list[Thing], limit: int, cursor: Callable[[Thing], str]) -> Page:
    page = found[:limit]
    return Page(page, cursor(page[-1]) if len(found) > limit else None)


def _time_and_id(cursor: str) -> tuple[datetime, int]:
    moment, number = from_cursor(cursor, 2)
    return moment_of(moment), number


def step_cursor(place: StepPlace) -> str:
    return to_cursor(place.at, place.ordinal, name=_placed(place.step_id))


def step_place(cursor: str | None) -> StepPlace:
    """The place of a step again; the first for none."""
    if not cursor:
        return FIRST_STEP
    step_id, (moment, ordinal) = from_named_cursor(cursor, 2)
    at = moment_of(moment)
    if "\0" in step_id or not -(2**31) <= ordinal < 2**31 or not is_in_range(at):
        raise of_another_list()
    return StepPlace(at, ordinal, step_id)
