"""Looking into a queue: pages of live messages, and the cursors that lead from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgqrs.api.arguments import checked_batch
from pgqrs.api.cursors import from_cursor, moment_of, of_another_list, to_cursor
from pgqrs.db.database import WHOLE
from pgqrs.db.tables import queues
from pgqrs.db.views import queue_peek
from pgqrs.db.views.queue_peek import FIRST, PeekPosition
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
    return to_cursor(int(last.is_exhausted), last.priority, last.visible_after, last.id)


def _from_cursor(cursor: str) -> PeekPosition:
    exhausted, priority, moment, message_id = from_cursor(cursor, 4)
    if exhausted not in (0, 1) or abs(priority) > 2**31 or message_id < 0:
        raise of_another_list()
    return PeekPosition(bool(exhausted), priority, moment_of(moment), message_id)
