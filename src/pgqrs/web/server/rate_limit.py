"""What one caller may take of the server: requests a second that add work, and requests at the same time."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pgqrs.errors import ConfigError
from pgqrs.web.problems import Problem

# Callers that are remembered; past this those whose bucket is full again are forgotten, which changes nothing.
MOST_CALLERS = 10_000
# A fifth of the connections of `pgqrs serve`: requests that wait for a run's end are among them.
MOST_AT_ONCE = 100
# Exports and downloads: each holds some 8 MB for as long as its client reads.
MOST_DOCUMENTS = 8


class RateLimit:
    """`per_second` requests in the long run, `burst` at once; 0 switches it off."""

    def __init__(self, per_second: float = 500.0, burst: int = 1_000) -> None:
        if not math.isfinite(per_second) or per_second < 0 or burst < 1:
            raise ConfigError(f"a rate is a number from 0 on and a burst from 1 on, not {per_second!r} and {burst!r}")
        self._per_second = per_second
        self._burst = float(burst)
        # caller -> (what was left, when)
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        """One request of that caller; 429 with the seconds after which the next may come."""
        if not self._per_second:
            return
        now = time.monotonic()
        left = self._filled(caller, now)
        if left < 1:
            seconds = max(1, math.ceil((1 - left) / self._per_second))
            raise Problem(
                429,
                "too-many-requests",
                f"more than {self._per_second:g} requests a second that add work",
                hint=f"wait {seconds} s, or send several runs in one call from Python",
                headers={"retry-after": str(seconds)},
            )
        if len(self._left) >= MOST_CALLERS:
            self._left = {name: each for name, each in self._left.items() if self._filled(name, now) < self._burst}
        self._left[caller] = (left - 1, now)

    def _filled(self, caller: str, now: float) -> float:
        left, since = self._left.get(caller, (self._burst, now))
        return min(self._burst, left + (now - since) * self._per_second)


class Share:
    """How many requests a caller may have in progress: one that waits costs a place that others need."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: Counter[str] = Counter()

    def check(self, caller: str) -> None:
        """429 when the caller has as many in progress as it may have."""
        if self._taken[caller] >= self.most:
            raise Problem(
                429,
                "too-many-at-once",
                f"{self.most} requests of this caller are in progress",
                hint="wait for one of them to end, or use another token for this client",
                headers={"retry-after": "1"},
            )

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
