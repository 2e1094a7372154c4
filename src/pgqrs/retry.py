"""How long to wait before trying again: exponential, capped, jittered."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base * 2^(attempt-1)` seconds, at most `cap`, plus up to half of that at random.

    The jitter keeps a thousand things that failed together from coming back together.
    """

    base: float = 1.0
    cap: float = 300.0
    jitter: float = 0.5

    def delay(self, attempt: int, *, chance: float | None = None) -> float:
        """Seconds to wait after the given attempt (the first is 1); `chance` in 0..1 stands for the dice."""
        # 2.0**1024 overflows; long before that the cap has been reached.
        raw = min(self.cap, self.base * 2.0 ** min(attempt - 1, 60))
        dice = random.random() if chance is None else chance  # noqa: S311 - spreads load, guards no secret
        return raw * (1 + self.jitter * dice)
