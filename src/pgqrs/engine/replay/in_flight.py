"""What a pass has begun and not recorded yet: the bodies of steps, and the engine's own calls for the handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pgqrs.engine.replay.pass_lease import PassLease


class InFlight:
    """Counts what is in flight; a run is neither put to rest nor ended meanwhile."""

    __slots__ = ("_bodies", "_count", "_landed", "_lease", "_on_finish")

    def __init__(self, lease: PassLease, on_finish: Callable[[], None]) -> None:
        self._lease = lease
        # Called each time when something is not in flight any more.
        self._on_finish = on_finish
        self._count = 0
        self._bodies: frozenset[asyncio.Task[Any]] = frozenset()
        self._landed: asyncio.Event | None = None

    def __bool__(self) -> bool:
        """True while something is in flight."""
        return self._count > 0

    def begin(self) -> None:
        self._lease.check_alive()
        self._count += 1

    def begun(self, body: asyncio.Task[Any]) -> asyncio.Task[Any]:
        """The body of a step: in flight until it is done, even when it is ended before it began."""
        self._bodies |= {body}
        body.add_done_callback(self._body_done)
        return body

    def _body_done(self, body: asyncio.Task[Any]) -> None:
        self._bodies -= {body}
        # Its caller may be gone: then this is the only look at its error.
        if not body.cancelled():
            body.exception()
        self.finish()

    def finish(self) -> None:
        self._count -= 1
        if not self._count and self._landed is not None:
            self._landed.set()
        self._on_finish()

    def cancel(self) -> None:
        """End the bodies of steps."""
        for body in self._bodies:
            body.cancel()

    async def landed(self) -> None:
        """Wait until nothing is in flight; not to be called when nothing is."""
        self._landed = asyncio.Event()
        await self._landed.wait()
