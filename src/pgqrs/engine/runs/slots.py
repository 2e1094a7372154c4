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
from pgqrs.engine.instrumentation import hooks

log: logging.Logger = logging.getLogger("pgqrs.worker")

# A worker holds ahead what it is going to begin within this time at its present pace. So a quick one leases in
# large batches and never waits for them, and a slow one leaves to others what it cannot begin itself.
_AHEAD_SECONDS = 0.05
_MEASURED_OVER_SECONDS = 0.05


class Slots:
    """So many runs at work at a time, each in a task of its own. Others read what is here; these verbs change it.

    take       what was leased begins, or is ready to begin when another run ends
    close      nothing more begins
    withdraw   close, and give up what is ready
    release    give up what is at work and does not end
    """

    def __init__(
        self,
        size: int,
        *,
        execute: Callable[[Claim, HeldLease], Coroutine[Any, Any, bool]],
        on_room: Callable[[], None],
    ) -> None:
        """`execute` returns True when its run is going to be due again, perhaps soon.

        `on_room` is called when it is worth leasing again.
        """
        self.size = size
        self.running: dict[asyncio.Task[bool], Claim] = {}
        self.ready: deque[tuple[Claim, HeldLease]] = deque()
        # Given up, and still there.
        self.stuck: set[asyncio.Task[bool]] = set()
        self._is_open = True
        # The last lease gave all that it was asked for, or something here has become due again: ask once more.
        self._more_is_likely = True
        # Something has ended since the worker last began to look for runs.
        self._freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._execute = execute
        self._on_room = on_room
        self._pace = _Pace()
        self._meter = hooks.meter
        if self._meter is not None:
            self._meter.serving(self)

    @property
    def is_empty(self) -> bool:
        return not self.running and not self.ready

    @property
    def is_full(self) -> bool:
        return len(self.running) >= self.size

    @property
    def more_is_likely(self) -> bool:
        """True when another lease is likely to find something."""
        return self._more_is_likely

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

    # -- looking for runs --------------------------------------------------------------------------------

    def look(self) -> None:
        """The worker begins to look for runs: what ends from now on is news to it."""
        self._freed.clear()

    def expect(self, *, more: bool) -> None:
        """Say whether another lease is likely to find something."""
        self._more_is_likely = more

    def take(self, claimed: list[tuple[Claim, HeldLease]]) -> None:
        """Begin what was leased, or keep it ready."""
        self.ready.extend(claimed)
        self._begin()

    async def freed(self) -> None:
        """Wait until something has ended since `look`, or until `close`."""
        # The worker hears no hints meanwhile, nor what the runs here may have triggered.
        self._more_is_likely = True
        await self._freed.wait()

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Begin nothing more; the worker need not wait for room. Idempotent."""
        self._is_open = False
        self._freed.set()

    def withdraw(self) -> list[tuple[Claim, HeldLease]]:
        """Close, and give up what has not begun."""
        self.close()
        withdrawn = list(self.ready)
        self.ready.clear()
        return withdrawn

    def release(self, task: asyncio.Task[Any]) -> None:
        """Free the slot of a task that does not end although it was cancelled."""
        if (claim := self.running.get(task)) is not None:
            log.error(
                "run %d: its handler was cancelled and does not end (does it stop CancelledError?); its slot is free "
                "again, but what it does continues in this process",
                claim.run_id,
            )
            self.stuck.add(task)
            self._free(task)

    def leave(self) -> None:
        """The worker is there no more."""
        if self._meter is not None:
            self._meter.left(self)

    # -- tasks -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        while self.ready and self._is_open and len(self.running) < self.size:
            claim, held = self.ready.popleft()
            task = self._loop.create_task(self._execute(claim, held))
            self.running[task] = claim
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[bool]) -> None:
        claim = self.running.get(task)
        if not task.cancelled():
            if (error := task.exception()) is not None:
                run_id = 0 if claim is None else claim.run_id
                log.error(
                    "run %d: its task ended unexpectedly; the run continues when its lease ends",
                    run_id,
                    exc_info=error,
                )
            elif task.result():
                # Perhaps before what the idle worker waits for.
                self._more_is_likely = True
        self.stuck.discard(task)
        if claim is not None:
            self._free(task)

    def _free(self, task: asyncio.Task[bool]) -> None:
        del self.running[task]
        self._pace.count()
        self._begin()
        is_worth_a_lease = not self.running or (self._more_is_likely and self.wanted() > 0)
        if is_worth_a_lease and not self._freed.is_set():
            self._freed.set()
            if self._more_is_likely:
                self._on_room()


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
