"""Looking into a queue without taking anything: a page at a time, each the head of an index range."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pgqrs.clock import EPOCH
from pgqrs.db.database import WHOLE, Database, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.db.readable import most_behind
from pgqrs.types import MessageState, QueuedMessage

_SQL = load(__package__, "queue_peek")


class PeekPosition(NamedTuple):
    """Where a page begins: behind this one. What is exhausted comes after all that may still be leased."""

    is_exhausted: bool
    priority: int
    visible_after: datetime
    message_id: int


# Before every message: there is no priority so high.
FIRST = PeekPosition(False, 2**31, EPOCH, 0)  # noqa: FBT003 - its name is above
_FIRST_EXHAUSTED = PeekPosition(True, 0, EPOCH, 0)  # noqa: FBT003


@store_call(Kind.READ, idempotent=True)
async def peek(
    db: Database, queue_id: int, queue: str, *, limit: int, after: PeekPosition, cut: int = WHOLE
) -> list[QueuedMessage]:
    """What is live in a queue, in the order in which it would be leased, from a place on; payloads are cut."""
    found: list[Row] = []
    if not after.is_exhausted:
        if after != FIRST:
            found += await _after(db, "of_same_priority", queue_id, after, most=limit, cut=cut)
        if len(found) < limit:
            query, most = _SQL["of_lower_priority"], limit - len(found)
            found += await db.fetch(query, queue_id=queue_id, priority=after.priority, most=most, cut=cut)
        after = _FIRST_EXHAUSTED
    if len(found) < limit:
        found += await _after(db, "exhausted", queue_id, after, most=limit - len(found), cut=cut)
    return [_message(queue, row) for row in found]


async def _after(db: Database, query: str, queue_id: int, after: PeekPosition, *, most: int, cut: int) -> list[Row]:
    place = {"visible_after": after.visible_after, "message_id": after.message_id}
    given = {"queue_id": queue_id, **place, "most": most_behind(after.visible_after, most), "cut": cut}
    if query == "of_same_priority":
        given["priority"] = after.priority
    return await db.fetch(_SQL[query], **given)


def _message(queue: str, row: Row) -> QueuedMessage:
    message_id, payload, run_id, priority, state, *rest = row
    return QueuedMessage(message_id, queue, payload, run_id, priority, MessageState(state), *rest)
