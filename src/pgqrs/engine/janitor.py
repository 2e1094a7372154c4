"""The janitor: carries out retention policies in small batches, with pauses, beside the work that goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.upkeep import retention
from pgqrs.db.upkeep.retention import Batch, Range, ReadPosition
from pgqrs.reports import RetentionCount, RetentionPolicy, RetentionReport

log: logging.Logger = logging.getLogger("pgqrs.janitor")

BATCH = 200
# The pause after a batch, in lengths of that batch: when the database is busy, batches take longer, and so do pauses.
PAUSE_LENGTHS = 6.0
_LEAST_PAUSE_SECONDS = 0.01
_REST_SECONDS = 60.0
# Who is at it says so for this long, and says so again after a third of it; should it die, another goes on.
_TURN_SECONDS = 60.0
# What had to wait is looked at again this often; until then each look begins where the last one ended.
_ANEW_SECONDS = 3600.0
# Tables without an index for the question: small ones, but not worth a look every minute.
_RARELY = frozenset({"workers", "schedule_slots"})
# A worker that lives gives a sign of life far more often, whatever a policy says.
_SILENT_AT_LEAST_SECONDS = 3600.0
# A dry run counts no further.
COUNT_AT_MOST = 100_001


class Janitor:
    """Any number of them may run: one works, the others leave it to that one."""

    def __init__(
        self,
        db: Driver,
        config: Config,
        *,
        pause_lengths: float = PAUSE_LENGTHS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._pause_lengths = pause_lengths
        # How long things took here; what is old enough, the database says.
        self._monotonic = monotonic
        self._silent_seconds = max(_SILENT_AT_LEAST_SECONDS, 3 * config.lease_seconds)
        self._todo: list[Range] = []
        self._policies: list[RetentionPolicy] = []
        self._places: dict[tuple[str, int, str], ReadPosition] = {}
        self._began = self._monotonic()
        self._looked_at: set[tuple[str, int, str]] = set()
        self._turn_began = 0.0
        self._not_before = 0.0

    async def turn(self) -> float:
        """One batch when there is something to delete; returns in how many seconds to go on."""
        # A hint that was meant for others brings a turn forward: pauses are the point here, so they are kept.
        early = self._not_before - self._monotonic()
        if early > 0:
            return early
        seconds = await self._turn()
        self._not_before = self._monotonic() + seconds
        return seconds

    async def _turn(self) -> float:
        # A policy that was changed or forgotten counts from the next batch on: what is deleted does not come back.
        if self._todo and await retention.policies(self._db) != self._policies:
            self._todo = []
            await self._find_work(mine=True)
        if not self._todo and not await self._find_work(mine=False):
            return _REST_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards no secret
        if self._monotonic() - self._turn_began > _TURN_SECONDS / 3:
            await retention.keep_turn(self._db, seconds=_TURN_SECONDS)
            self._turn_began = self._monotonic()
        # Taken off first: should it fail, the others have their turn before it is found again.
        given = self._todo.pop(0)
        began = self._monotonic()
        batch = await self._delete(given, self._places.get(given.key, ReadPosition()))
        self._places[given.key] = batch.place
        if batch.done:
            self._looked_at.add(given.key)
        else:
            self._todo.insert(0, given)
        if batch.deleted:
            log.debug("deleted %d of %s", batch.deleted, given.policy)
        return self._pause(self._monotonic() - began)

    def _pause(self, took: float) -> float:
        return max(_LEAST_PAUSE_SECONDS, took * self._pause_lengths)

    async def sweep(
        self, ranges: Sequence[Range] | None = None, *, on_progress: Callable[[int], None] | None = None
    ) -> RetentionReport:
        """Everything that is due now, whoever else is at it; returns when it is done."""
        todo = await retention.ranges(self._db) if ranges is None else ranges
        tally = _Tally(dry_run=False)
        for given in todo:
            place, done = ReadPosition(), False
            while not done:
                began = self._monotonic()
                batch = await self._delete(given, place)
                tally.add(given, batch.deleted, batch.seen - batch.deleted)
                if on_progress is not None:
                    on_progress(batch.deleted)
                place, done = batch.place, batch.done
                if not done:
                    await asyncio.sleep(self._pause(self._monotonic() - began))
        return tally.report(await self._reported(todo, ranges))

    async def count(self, ranges: Sequence[Range] | None = None) -> RetentionReport:
        """What `sweep` would delete; counts no further than `COUNT_AT_MOST` for each policy."""
        todo = await retention.ranges(self._db) if ranges is None else ranges
        tally = _Tally(dry_run=True)
        for given in todo:
            left = COUNT_AT_MOST - tally.seen(given)
            if left > 0:
                seen, deletable = await retention.count(self._db, self._complete(given), most=left)
                tally.add(given, deletable, seen - deletable)
        return tally.report(await self._reported(todo, ranges))

    async def _find_work(self, *, mine: bool) -> bool:
        """`mine`: this one has the turn already."""
        if self._monotonic() - self._began > _ANEW_SECONDS:
            self._began = self._monotonic()
            self._places.clear()
            self._looked_at.clear()
        due = await retention.due_ranges(self._db, mine=mine)
        todo = [each for each in due if each.what not in _RARELY or each.key not in self._looked_at]
        if not todo or not (mine or await retention.take_turn(self._db, seconds=_TURN_SECONDS)):
            return False
        self._policies = await retention.policies(self._db)
        self._turn_began = self._monotonic()
        self._todo = todo
        return True

    async def _delete(self, given: Range, after: ReadPosition) -> Batch:
        return await retention.delete_batch(self._db, self._complete(given), batch=BATCH, after=after)

    def _complete(self, given: Range) -> Range:
        return dataclasses.replace(given, silent_seconds=max(given.keep_seconds, self._silent_seconds))

    async def _reported(self, todo: Iterable[Range], given: Sequence[Range] | None) -> list[RetentionPolicy]:
        """A policy with nothing to be applied to is reported too."""
        if given is None:
            return await retention.policies(self._db)
        return list(dict.fromkeys(each.policy for each in todo))


class _Tally:
    """Adds up by policy what was found range by range."""

    def __init__(self, *, dry_run: bool) -> None:
        self._dry_run = dry_run
        self._found: dict[RetentionPolicy, tuple[int, int]] = {}

    def add(self, given: Range, count: int, held_back: int) -> None:
        so_far = self._found.get(given.policy, (0, 0))
        self._found[given.policy] = (so_far[0] + count, so_far[1] + held_back)

    def seen(self, given: Range) -> int:
        return sum(self._found.get(given.policy, (0, 0)))

    def report(self, policies: Iterable[RetentionPolicy]) -> RetentionReport:
        counts = []
        for policy in policies:
            count, held_back = self._found.get(policy, (0, 0))
            capped = self._dry_run and count + held_back >= COUNT_AT_MOST
            counts.append(
                RetentionCount(policy, min(count, COUNT_AT_MOST - 1) if capped else count, held_back, capped)
            )
        return RetentionReport(self._dry_run, tuple(counts))
