"""Leases runs by demand: as many as the worker's slots want, from the queues that have room."""

from __future__ import annotations

import asyncio
import time

from pgqrs import shutdown_budgets
from pgqrs.db.driver import Driver
from pgqrs.db.runs import claims
from pgqrs.db.runs.claims import Claim
from pgqrs.db.tables.messages import Source
from pgqrs.engine.runs.executor import Executor
from pgqrs.engine.runs.served import ServedWorkflows
from pgqrs.engine.runs.shutdown import ends_within
from pgqrs.engine.runs.slots import Slots
from pgqrs.errors import StorePromoted


class Claimer:
    """Fills the slots of one worker."""

    def __init__(
        self, db: Driver, *, worker_id: int, service: ServedWorkflows, slots: Slots, executor: Executor
    ) -> None:
        self._db = db
        self._worker_id = worker_id
        self._service = service
        self._slots = slots
        self._executor = executor
        self._answered_at = time.monotonic()
        self._promoted: StorePromoted | None = None

    @property
    def seconds_since_answer(self) -> float:
        """Since it asked for runs and was answered; 0 while the worker has as many as it may."""
        return 0.0 if self._slots.is_full else time.monotonic() - self._answered_at

    def queues_with_room(self) -> list[int]:
        """The queues that it leases from now: those of a workflow that is at its own limit here are left out."""
        return [source.queue_id for source in self._sources()]

    def refuse(self, error: StorePromoted) -> None:
        """Raise this from now on: nothing can be recorded here any more, so nothing more begins."""
        self._promoted = error
        self._slots.close()

    async def claim(self) -> int:
        """Lease what the slots want; return how many there were."""
        if self._promoted is not None:
            raise self._promoted
        wanted = self._slots.wanted()
        sources = self._sources()
        if wanted <= 0 or not sources:
            self._slots.expect(more=True)
            return 0
        since = time.monotonic()
        known = {claim.lease.message_id for claim in self._slots.claims()}
        claiming = asyncio.ensure_future(
            claims.claim(self._db, sources, worker_id=self._worker_id, batch=wanted, known=known)
        )
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # What is leased must be known, or nobody hands it back; unless the database does not say. None begins.
            self._slots.close()
            if await ends_within(shutdown_budgets.WORKER_FAREWELL_SECONDS, claiming):
                self._take(claiming.result(), since=since)
            raise
        self._answered_at = time.monotonic()
        # Less than asked for: there was no more, unless a workflow's own limit stood in the way.
        limited = len(sources) < len(self._service.queue_ids) or any(source.most < wanted for source in sources)
        self._slots.expect(more=limited or len(claimed) >= wanted)
        self._take(claimed, since=since)
        return len(claimed)

    def _sources(self) -> list[Source]:
        return self._service.sources(self._slots.by_workflow())

    def _take(self, claimed: list[Claim], *, since: float) -> None:
        self._slots.take([(claim, self._executor.hold(claim, since=since)) for claim in claimed])
