"""Looking into a queue: pages of live messages, and the cursors that lead from one to the next."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from pgqrs.api.arguments import checked_batch
from pgqrs.api.cursors import MOST_CURSOR
from pgqrs.clock import from_microseconds, microseconds
from pgqrs.db.database import WHOLE
from pgqrs.db.tables import queues
from pgqrs.db.views import queue_peek
from pgqrs.db.views.queue_peek import FIRST, PeekPosition
from pgqrs.errors import ConfigError
from pgqrs.text.names import checked_name
from pgqrs.types import QueuedMessage

if TYPE_CHECKING:
    from pgqrs.api.store import Store


class MessagePage(list[QueuedMessage]):
    """A page of messages, in the order in which they would be taken; `next_cursor` leads on, None after the last."""

    next_cursor: str | None = None


async def peek(store: Store, queue: str, *, limit: int, cursor: str | None, cut: int = WHOLE) -> MessagePage:
    db = await store.ready()
    found = await queues.get(db, checked_name("queue", queue))
    most = checked_batch("limit", limit)
    after = FIRST if cursor is None else _from_cursor(cursor)
    # One more than asked for tells whether there is a next page.
    messages = await queue_peek.peek(db, found.queue_id, queue, limit=most + 1, after=after, cut=cut)
    page = MessagePage(messages[:most])
    page.next_cursor = _to_cursor(page[-1]) if len(messages) > most else None
    return page


def _to_cursor(last: QueuedMessage) -> str:
    moment = microseconds(last.visible_after)
    text = json.dumps([last.is_exhausted, last.priority, moment, last.id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _from_cursor(cursor: str) -> PeekPosition:
    try:
        if len(cursor) > MOST_CURSOR:
            raise ValueError(cursor)
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        exhausted, priority, moment, message_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        numbers = (priority, moment, message_id)
        if type(exhausted) is not bool or any(type(each) is not int for each in numbers):
            raise ValueError(cursor)
        if not (abs(priority) <= 2**31 and 0 <= message_id < 2**63):
            raise ValueError(cursor)
        return PeekPosition(exhausted, priority, from_microseconds(moment), message_id)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ConfigError(
            f"cursor {str(cursor)[:60]!r} is broken; use next_cursor of the page before, or none"
        ) from None
