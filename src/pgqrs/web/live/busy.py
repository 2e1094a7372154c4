"""How long the server has been making pages: the more it takes, the more seldom it tells them to follow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Busy:
    """The time during which at least one page was in the making; those made side by side count once."""

    def __init__(self) -> None:
        self._under_way = 0
        self._since = 0.0
        self._ended = 0.0

    @contextmanager
    def making(self) -> Iterator[None]:
        if not self._under_way:
            self._since = time.monotonic()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._ended += time.monotonic() - self._since

    @property
    def seconds(self) -> float:
        """Since the process began."""
        return self._ended + (time.monotonic() - self._since if self._under_way else 0.0)
