"""Wake-up hints: "something may be ready in this queue", never needed for correctness, never data."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

# A topic is a queue's id, or the negative of a run's id ("it has ended"); or one of these.
CATALOGUE = 0  # a workflow or a schedule was made or changed
OUTBOX = 2**62  # something is to be published
WORKERS = OUTBOX + 1  # one of them is to stop


class Subscription:
    """One waiter's bell. It stays rung until `clear`, so a hint between a look and a wait is not lost."""

    def __init__(self, topics: frozenset[int]) -> None:
        self.topics = topics
        self._loop = asyncio.get_running_loop()
        self._bell = asyncio.Event()

    def clear(self) -> None:
        self._bell.clear()

    def ring(self) -> None:
        """From any thread."""
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - as public, but None where there is no loop
            self._bell.set()
            return
        # A closed loop raises: nobody is left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._bell.set)

    async def wait(self, seconds: float) -> bool:
        """True when the bell rang within that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        return True


class Hints:
    """Who in this process waits for which queues, and how other processes are told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []
        # What differs between the databases, set by the drivers: how other processes are told, and what
        # must be running to hear of them (one per store, as stores of one process may share their hints).
        self.tell_others: Callable[[frozenset[int]], None] | None = None
        self.listeners: list[Callable[[], None]] = []
        # Told of every hint, with its topics, in whatever thread it comes.
        self.watchers: list[Callable[[frozenset[int] | None], None]] = []

    @property
    def waited_for(self) -> bool:
        return bool(self._subscriptions)

    @contextmanager
    def subscribed(self, topics: Iterable[int]) -> Iterator[Subscription]:
        subscription = Subscription(frozenset(topics))
        with self._lock:
            self._subscriptions.append(subscription)
        try:
            for listen in tuple(self.listeners):
                listen()
            yield subscription
        finally:
            with self._lock:
                self._subscriptions.remove(subscription)

    def announce(self, topics: Iterable[int]) -> None:
        """After a commit: wake whoever waits here at once, and let other processes know."""
        told = frozenset(topics)
        self.wake(told)
        if self.tell_others is not None:
            self.tell_others(told)

    def wake(self, topics: frozenset[int] | None = None) -> None:
        """Wake those who wait for one of the topics; without topics, everybody."""
        with self._lock:
            woken = [s for s in self._subscriptions if topics is None or s.topics & topics]
        for subscription in woken:
            subscription.ring()
        for watch in tuple(self.watchers):
            watch(topics)
