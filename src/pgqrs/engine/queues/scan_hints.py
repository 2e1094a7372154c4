"""Where the last leases of a queue ended: a place to begin the next look, so that it need not walk what is gone.

A lease reads its queue's index from the oldest visible message on. What was leased and archived leaves dead entries
there, until vacuum has been, and no vacuum removes what a transaction that began before could still see: with a
backup running for an hour each lease would walk an hour's messages. So the next look begins where the last one ended.

It is a hint and no more: what became visible behind it (a transaction that committed late, a time in the past, a row
that somebody had locked) is found by looking everywhere, which is done whenever the hinted look finds nothing, and
otherwise as often as takes a twentieth of the time. Of priorities that came into use since the last look everywhere
the highest between two known ones is seen: one batch may hold a lower one before the next has the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime

from pgqrs.db.tables.messages import BEFORE_ALL, Lease, PriorityRange

# A look everywhere that is quicker than this is not worth a hint.
QUICK_SECONDS = 0.002
# So many times as long as the last look everywhere took, hints are good enough.
SHARE = 20
# Beyond this the bands cost more than they save.
MOST_PRIORITIES = 20
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


class ScanHints:
    """The oldest message that may still be there, for each priority."""

    def __init__(self) -> None:
        self._since: dict[int, datetime] = {}
        self._good_until = 0.0

    def bands(self) -> list[PriorityRange]:
        """Which ranges to read, highest priority first; none: everywhere."""
        if not self._since or len(self._since) > MOST_PRIORITIES or time.monotonic() >= self._good_until:
            return []
        bands = []
        highest = _HIGHEST
        for priority in sorted(self._since, reverse=True):
            # Between those that are known others may have come into use.
            if priority < highest:
                bands.append(PriorityRange(priority + 1, highest, BEFORE_ALL))
            bands.append(PriorityRange(priority, priority, self._since[priority]))
            highest = priority - 1
        if highest >= _LOWEST:
            bands.append(PriorityRange(_LOWEST, highest, BEFORE_ALL))
        return bands

    def looked_everywhere(self, seconds: float) -> None:
        self._since.clear()
        self._good_until = time.monotonic() + SHARE * seconds if seconds > QUICK_SECONDS else 0.0

    def found(self, leases: Iterable[Lease]) -> None:
        """In the order of the queue: the last of each priority is where the next look begins."""
        for lease in leases:
            if lease.due_at is not None:
                self._since[lease.priority] = lease.due_at
