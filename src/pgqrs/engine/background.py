"""A background role: one thing that is done again and again, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from pgqrs.db.hints import Hints, Subscription
from pgqrs.errors import ConnectionFailed, PgqrsError, StorePromoted
from pgqrs.retry import Backoff

log: logging.Logger = logging.getLogger("pgqrs.loop")

_AFTER_AN_ERROR = Backoff(base=0.5, cap=30.0)


class BackgroundLoop:
    """Calls `turn`, which does what is due and says in how many seconds it wants to be called again.

    A hint on one of the topics, and `wake`, bring the next turn forward. An error is logged and does not end the
    loop: a role that has died quietly is worse than one that complains.
    """

    def __init__(
        self, name: str, turn: Callable[[], Awaitable[float]], *, hints: Hints, topics: Iterable[int] = ()
    ) -> None:
        self.name = name
        self._turn = turn
        self._hints = hints
        self._topics = tuple(topics)
        self._stopping = False
        self._bell: Subscription | None = None

    def stop(self) -> None:
        """`run` returns when its present turn is done. Idempotent."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        if self._bell is not None:
            self._bell.ring()

    async def run(self) -> None:
        failed = 0
        with self._hints.subscribed(self._topics) as self._bell:
            while not self._stopping:
                self._bell.clear()
                try:
                    seconds = await self._turn()
                    failed = 0
                except (asyncio.CancelledError, StorePromoted):
                    # The second ends it, too: nothing will ever be due here again.
                    raise
                except Exception as error:  # noqa: BLE001 - see above
                    failed += 1
                    seconds = _AFTER_AN_ERROR.delay(failed)
                    self._complain(error, seconds)
                if not self._stopping:
                    await self._bell.wait(seconds)

    def _complain(self, error: Exception, seconds: float) -> None:
        if isinstance(error, ConnectionFailed):
            log.warning("%s: the database is away (%s); next try in %.0f s", self.name, error, seconds)
        elif isinstance(error, PgqrsError):
            log.error("%s: %s; next try in %.0f s", self.name, error, seconds)
        else:
            log.error("%s failed; next try in %.0f s", self.name, seconds, exc_info=error)
