"""Where events go: which types a publisher takes, and how a receiver that fails is spared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgqrs.retry import Backoff
from pgqrs.types import OutboxEvent

# So many failures in a row, of whatever events, and a route rests; then one event at a time tries it again.
_FAILURES_BEFORE_REST = 3
_REST = Backoff(base=1.0, cap=60.0)


class Publisher(Protocol):
    """Hands an event to somebody. It may be called with the same event again: at least once."""

    async def publish(self, event: OutboxEvent) -> None:
        """Returns when the receiver has the event; raises when it has not."""
        ...


class Route:
    """A publisher, the types it is for (`order.*`, or exact), and how it has been doing."""

    def __init__(self, publisher: Publisher, types: Sequence[str] = ("*",)) -> None:
        self.publisher = publisher
        self.types: tuple[str, ...] = tuple(types)
        self.in_flight = 0
        self._failures = 0
        self._rests_until = 0.0

    def takes(self, event_type: str) -> bool:
        return any(
            event_type.startswith(each[:-1]) if each.endswith("*") else event_type == each for each in self.types
        )

    def room(self, now: float, *, most: int) -> int:
        """How many more publications may begin now."""
        if now < self._rests_until:
            return 0
        return (1 if self._failures >= _FAILURES_BEFORE_REST else most) - self.in_flight

    def rest_left(self, now: float) -> float:
        """Seconds; 0 when it does not rest."""
        return max(0.0, self._rests_until - now)

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, now: float) -> None:
        if now < self._rests_until:
            return  # What was under way when the rest began: the same outage, not a longer one.
        self._failures += 1
        if self._failures >= _FAILURES_BEFORE_REST:
            self._rests_until = now + _REST.delay(self._failures - _FAILURES_BEFORE_REST + 1)

    def __repr__(self) -> str:
        return f"<Route {', '.join(self.types)} to {self.publisher!r}>"
