"""Looking after the outbox: what waits, what is dead, and sending it after all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgqrs.api.arguments import MOST_PER_CALL, checked_batch, checked_whole
from pgqrs.api.operations.search import OnProgress
from pgqrs.db import hints
from pgqrs.db.tables import outbox
from pgqrs.engine.outbox.dispatcher import source_of
from pgqrs.reports import OutboxCounts
from pgqrs.types import OutboxEvent

if TYPE_CHECKING:
    from pgqrs.api.store import Store

_BATCH = 5_000


class OutboxAdmin:
    """The verbs of `admin.outbox`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def counts(self) -> OutboxCounts:
        return await outbox.counts(await self._store.ready())

    async def unpublished(self, *, limit: int = 100, after: OutboxEvent | None = None) -> list[OutboxEvent]:
        """What is still to be published, by run and in its order; `after` pages on."""
        db = await self._store.ready()
        source = source_of(self._store.config)
        return await outbox.unpublished(db, limit=checked_batch("limit", limit), after=after, source=source)

    async def dead(self, *, limit: int = 100, after: OutboxEvent | None = None) -> list[OutboxEvent]:
        """What was tried `max_attempts` times, longest dead first; `after` pages on."""
        db = await self._store.ready()
        source = source_of(self._store.config)
        return await outbox.dead(db, limit=checked_batch("limit", limit), after=after, source=source)

    async def replay(self, event_ids: Sequence[int] | None = None, *, on_progress: OnProgress = None) -> int:
        """Dead events (all, or those with the `event_id`s given) start anew; returns how many.

        They come after what their run has published meanwhile: order is kept among what is not dead. `on_progress` is
        called with how many more have been started again.
        """
        db = await self._store.ready()
        total = 0

        async def start_anew(ids: Sequence[int]) -> int:
            again = await outbox.replay(db, ids)
            if on_progress is not None:
                on_progress(again)
            return again

        if event_ids is None:
            while page := await outbox.dead(db, limit=_BATCH, after=None, source="", cut=0):
                total += await start_anew([event.event_id for event in page])
        else:
            given = [checked_whole("event_ids", each, least=0, most=2**63 - 1) for each in event_ids]
            for start in range(0, len(given), MOST_PER_CALL):
                total += await start_anew(given[start : start + MOST_PER_CALL])
        if total:
            db.hints.announce([hints.OUTBOX])
        return total
