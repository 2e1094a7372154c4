"""Bytes of answers that wait to be sent: an answer stays in memory until its client has read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pgqrs.web.problems import Problem

# Five pages of a list with the largest values (lists.py).
MOST_BYTES_PER_CALLER = 32 * 1024 * 1024
# Of all callers together.
MOST_BYTES = 128 * 1024 * 1024
# The server's own buffer takes as much of any answer; how many there are of these is bounded by requests.
SMALL_BYTES = 64 * 1024


class Unsent:
    """What each caller has asked for and not read yet. It is false when nothing waits."""

    def __init__(
        self, *, most: int = MOST_BYTES, per_caller: int = MOST_BYTES_PER_CALLER, small: int = SMALL_BYTES
    ) -> None:
        self._most = most
        self._per_caller = per_caller
        self._small = small
        self._waiting: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @contextmanager
    def held(self, caller: str, size: int) -> Iterator[None]:
        """Count an answer until it is sent; raise 429 for more than the caller may leave unread.

        A caller with nothing waiting gets its answer in any case: the slow readers of one token keep no other out.
        """
        if size <= self._small:
            yield
            return
        mine = self._waiting[caller]
        if mine and (mine + size > self._per_caller or self._waiting.total() + size > self._most):
            raise Problem(
                429,
                "too-many-unread",
                f"{mine:,} bytes of answers wait for this caller, and this one has {size:,} more",
                hint="read the answers that you have asked for first, or ask for less with limit=",
                headers={"retry-after": "1"},
            )
        self._waiting[caller] += size
        try:
            yield
        finally:
            self._waiting[caller] -= size
            if not self._waiting[caller]:
                del self._waiting[caller]
