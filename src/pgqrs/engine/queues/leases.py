"""What one consumer holds: its row among the workers, and its leases of one queue by token and end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from pgqrs.db.driver import Driver
from pgqrs.db.tables import messages, queues, workers
from pgqrs.db.tables.messages import Fence, Lease, PriorityRange, Source
from pgqrs.engine.queues.scan_hints import ScanHints

log: logging.Logger = logging.getLogger("pgqrs.queue")

# A third of the default lease: a consumer whose last sign of life is older than a lease is not there.
HEARTBEAT_SECONDS = 10.0
# Leases that were never settled are kept in mind until there are this many, then the ended ones are let go.
MOST_REMEMBERED = 10_000
_NOT_HELD: tuple[None, float] = (None, 0.0)


class LeaseHolder:
    """Leases messages of one queue, and knows what it holds. Its verbs alone change what it knows."""

    def __init__(
        self, db: Driver, *, queue: str, queue_id: int, worker_id: int, registered: tuple[str, int, dict[str, Any]]
    ) -> None:
        self.db = db
        self.queue = queue
        self.queue_id: int = queue_id
        self.worker_id: int = worker_id
        # message id -> (token, when the lease ends on this process's monotonic clock)
        self._held: dict[int, tuple[int, float]] = {}
        self._registered = registered
        self._most_remembered = MOST_REMEMBERED
        self._one_lease = asyncio.Lock()
        self._beaten = time.monotonic()
        self._heads = ScanHints()

    async def take(
        self,
        batch: int,
        lease_seconds: float,
        *,
        done: Sequence[Fence] = (),
        keep: bool = True,
        thorough: bool = True,
    ) -> list[Lease]:
        """Up to `batch` leases; before that, in the same round trip, archives (or deletes) what is done.

        Not `thorough`, it may give fewer than there are, but never none when there is one.
        """
        await self.beat_if_due()
        self._forget_ended()
        # One at a time: after a lost reply `known` must hold all that this worker has, or two calls whose replies
        # were lost together would both find, and hand out, the messages of both.
        async with self._one_lease:
            leases = await self._turn(batch, lease_seconds, self._heads.bands(), done=done, keep=keep)
            if self._heads.bands() and (not leases or (thorough and len(leases) < batch)) and batch:
                leases += await self._turn(batch - len(leases), lease_seconds, [])
                leases.sort(key=lambda lease: -lease.priority)
            return leases

    async def settle(self, done: Sequence[Fence], *, keep: bool) -> None:
        """Archives (or deletes) what is done, while a lease may be under way."""
        await self._turn(0, 0.0, [], done=done, keep=keep)

    async def extend(self, fences: Sequence[Fence], seconds: float) -> set[int]:
        """Keep these for so long from now; return the ids of those that were still held."""
        ends = time.monotonic() + seconds
        kept = await messages.extend(self.db, fences, seconds=seconds) if fences else set()
        for message_id, token in fences:
            if message_id in kept:
                self._held[message_id] = (token, ends)
            else:
                self.forget([(message_id, token)])
        return kept

    async def _turn(
        self,
        batch: int,
        lease_seconds: float,
        bands: Sequence[PriorityRange],
        *,
        done: Sequence[Fence] = (),
        keep: bool = True,
    ) -> list[Lease]:
        started = time.monotonic()
        turn = await messages.settle_and_lease(
            self.db,
            Source(self.queue_id, lease_seconds),
            worker_id=self.worker_id,
            batch=batch,
            done=done,
            keep=keep,
            known=self._held,
            bands=bands,
        )
        ends, held = started + lease_seconds, self._held
        for lease in turn.leases:
            held[lease.message_id] = (lease.lease_token, ends)
        if batch and not bands:
            self._heads.looked_everywhere(time.monotonic() - started)
        self._heads.found(turn.leases)
        self.forget(done)
        if turn.lost:
            log.warning(
                "queue %s: of %d messages done here %d were somebody else's by then: their leases had run out",
                *(self.queue, len(done), turn.lost),
            )
        return turn.leases

    # -- what is held ------------------------------------------------------------------------------------

    @property
    def message_ids(self) -> list[int]:
        return list(self._held)

    def holds(self, lease: Lease) -> bool:
        """False when it was settled, or lost, or is held anew under another token."""
        return self._held.get(lease.message_id, _NOT_HELD)[0] == lease.lease_token

    def known(self, message_id: int) -> tuple[int | None, float]:
        """The token of its lease, and when that ends on this process's monotonic clock. From any thread.

        No token, and an end long ago, when the message is not held.
        """
        return self._held.get(message_id, _NOT_HELD)

    def renewed_by_others(self, lease: Lease) -> None:
        """From now on its end is not known here, and it must not be forgotten as ended."""
        if self.holds(lease):
            self._held[lease.message_id] = (lease.lease_token, math.inf)

    def forget(self, fences: Iterable[Fence]) -> None:
        """Those very leases: the same message may be held anew under another token."""
        held = self._held
        for message_id, token in fences:
            if held.get(message_id, _NOT_HELD)[0] == token:
                del held[message_id]

    def _forget_ended(self) -> None:
        if len(self._held) > self._most_remembered:
            now = time.monotonic()
            for message_id in [i for i, (_, ends) in self._held.items() if ends <= now]:
                del self._held[message_id]
            # Twice what is left: whoever really holds that many does not pay for the look at every dequeue.
            self._most_remembered = max(MOST_REMEMBERED, 2 * len(self._held))

    # -- life --------------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """A sign of life."""
        self._beaten = time.monotonic()
        if not await workers.heartbeat(self.db, self.worker_id) and not await self._moved():
            log.warning("worker %d of queue %s was declared stopped, yet it is here", self.worker_id, self.queue)

    async def beat_if_due(self) -> None:
        if time.monotonic() - self._beaten >= HEARTBEAT_SECONDS:
            await self.beat()

    async def _moved(self) -> bool:
        """The queue was deleted, and this worker with it; perhaps one of the same name has taken its place."""
        found = await queues.get(self.db, self.queue)
        if found.queue_id == self.queue_id:
            return False
        name, port, info = self._registered
        self.worker_id = await workers.register(self.db, queue_id=found.queue_id, name=name, port=port, info=info)
        self.queue_id = found.queue_id
        self._heads = ScanHints()
        return True
