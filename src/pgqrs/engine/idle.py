"""When an idle worker looks again: at a hint, when something falls due, or after a growing interval."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from pgqrs.db.driver import Driver
from pgqrs.db.hints import Subscription
from pgqrs.db.tables import messages
from pgqrs.retry import Backoff

# Each quiet wait makes the next half as long again, up to this many intervals: with the default of 1 s an idle
# worker asks every two seconds, and a short lease that somebody takes meanwhile and loses is still seen in time.
_GROWTH = 1.5
_LONGEST = 2.0
# What is due but locked by an open transaction (another worker's, or a user's long one) must not make this one spin.
_LOCKED = Backoff(base=0.01, cap=0.5)


class IdlePoller:
    """The waits of one idle worker. Hints make it quick; without any of them it still finds everything."""

    def __init__(self, db: Driver, *, interval: float) -> None:
        self._db = db
        self._interval = interval
        self._next = interval
        self._passed_over = 0

    def found(self) -> None:
        """Something was leased: there may be more soon."""
        self._next = self._interval

    async def wait(self, bell: Subscription, queue_ids: Sequence[int], *, at_most: float) -> None:
        """Returns when it is worth trying to lease again, or after `at_most` seconds. One query per interval."""
        deadline = time.monotonic() + at_most
        while (left := deadline - time.monotonic()) > 0:
            due = await messages.next_due(self._db, queue_ids)
            # Jitter, so that a thousand workers that started together do not ask together.
            seconds = self._next * random.uniform(1.0, 1.2)  # noqa: S311 - spreads load, guards no secret
            # Due, and yet the lease before this wait did not get it.
            self._passed_over = self._passed_over + 1 if due is not None and due <= 0 else 0
            if due is not None and due < seconds:
                await bell.wait(min(max(due, _LOCKED.delay(max(self._passed_over, 1))), left))
                return
            if await bell.wait(min(seconds, left)):
                self._next = self._interval
                return
            self._next = min(self._next * _GROWTH, self._interval * _LONGEST)
