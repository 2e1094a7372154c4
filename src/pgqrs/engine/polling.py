"""When an idle worker looks again: at a hint, when something falls due, or after a growing interval."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgqrs.db.driver import Driver
from pgqrs.db.hints import Subscription
from pgqrs.db.tables import messages

# Each empty look makes the next wait half as long again, up to this many intervals. One idle cycle is two queries
# (lease, next due), so with the default of 2 s an idle worker stays below one query a second.
_GROWTH = 1.5
_LONGEST = 3.0


class Idling:
    """The waits of one idle worker. Hints make it quick; without any of them it still finds everything."""

    def __init__(self, db: Driver, queue_ids: Sequence[int], *, interval: float) -> None:
        self._db = db
        self._queue_ids = queue_ids
        self._interval = interval
        self._longest = interval * _LONGEST
        self._next = interval

    def found_work(self) -> None:
        self._next = self._interval

    async def wait(self, bell: Subscription, *, at_most: float) -> None:
        """Returns when it is worth looking again, or after `at_most` seconds."""
        due = await messages.next_due(self._db, self._queue_ids)
        # Jitter, so that a thousand workers that started together do not ask together.
        seconds = self._next * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load, guards no secret
        if due is not None and due < seconds:
            # Not below 10 ms: what is due but locked by another worker must not make this one spin.
            seconds = max(due, 0.01)
        rang = await bell.wait(min(seconds, at_most))
        self._next = self._interval if rang else min(self._next * _GROWTH, self._longest)
