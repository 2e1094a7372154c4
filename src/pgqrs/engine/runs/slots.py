"""What a worker holds: the runs that are at work, and a few that were leased ahead of demand."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any

from pgqrs.db.runs.claims import Claim
from pgqrs.engine.heartbeat import HeldLease

log = logging.getLogger("pgqrs.worker")

# A worker holds ahead what it is going to begin within this time at its present pace. So a quick one leases in
# large batches and never waits for them, and a slow one leaves to others what it cannot begin itself.
_AHEAD_SECONDS = 0.05
_MEASURED_OVER_SECONDS = 0.05


class Slots:
    """So many runs at work at a time, each in a task of its own."""

    def __init__(
        self,
        size: int,
        *,
        execute: Callable[[Claim, HeldLease], Coroutine[Any, Any, None]],
        freed: Callable[[], None],
    ) -> None:
        self.size = size
        self.running: dict[asyncio.Task[None], Claim] = {}
        self.ready: deque[tuple[Claim, HeldLease]] = deque()
        # Given up, and still there.
        self.stuck: set[asyncio.Task[None]] = set()
        # False: what is ready is handed back, not begun.
        self.open = True
        # The last lease gave all that it was asked for, or something here has become due again: ask once more.
        self.more_is_likely = True
        self._loop = asyncio.get_running_loop()
        self._execute = execute
        # Called when it may be worth leasing again.
        self._freed = freed
        self._pace = _Pace()

    @property
    def is_empty(self) -> bool:
        return not self.running and not self.ready

    def wanted(self) -> int:
        """How many to lease now: what has room, and what will have it before another lease could come."""
        ahead = self._pace.ahead(self.size)
        if len(self.ready) > ahead // 2:
            return 0
        return self.size + ahead - len(self.running) - len(self.ready)

    def claims(self) -> list[Claim]:
        return [*self.running.values(), *(claim for claim, _ in self.ready)]

    def by_workflow(self) -> Counter[int]:
        return Counter(claim.workflow_id for claim in self.claims())

    def take(self, claimed: list[tuple[Claim, HeldLease]]) -> None:
        self.ready.extend(claimed)
        self._begin()

    def _begin(self) -> None:
        while self.ready and self.open and len(self.running) < self.size:
            claim, held = self.ready.popleft()
            task = self._loop.create_task(self._execute(claim, held))
            self.running[task] = claim
            task.add_done_callback(self._done)

    def release(self, task: asyncio.Task[None]) -> None:
        """Frees the slot of a task that does not end although it was cancelled."""
        if (claim := self.running.get(task)) is not None:
            log.error(
                "run %d: its handler was cancelled and does not end (does it stop CancelledError?); its slot is free "
                "again, but what it does continues in this process",
                claim.run_id,
            )
            self.stuck.add(task)
            self._freed_by(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        claim = self.running.get(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            run_id = 0 if claim is None else claim.run_id
            log.error(
                "run %d: its task ended unexpectedly; the run continues when its lease ends", run_id, exc_info=error
            )
        self.stuck.discard(task)
        if claim is not None:
            self._freed_by(task)

    def _freed_by(self, task: asyncio.Task[None]) -> None:
        del self.running[task]
        self._pace.count()
        self._begin()
        if not self.running or (self.more_is_likely and self.wanted() > 0):
            self._freed()


class _Pace:
    """How many runs end here in a second, as of late."""

    def __init__(self) -> None:
        self._counted = 0
        self._since = time.monotonic()
        self._per_second = 0.0

    def count(self) -> None:
        self._counted += 1

    def ahead(self, at_most: int) -> int:
        seconds = time.monotonic() - self._since
        if seconds >= _MEASURED_OVER_SECONDS:
            self._per_second = self._counted / seconds
            self._counted = 0
            self._since += seconds
        return min(at_most, int(self._per_second * _AHEAD_SECONDS))
