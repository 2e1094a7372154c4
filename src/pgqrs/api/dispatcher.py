"""Dispatchers: routes from the outbox to receivers, published until they are stopped."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from pgqrs.api.arguments import checked_whole
from pgqrs.db import hints
from pgqrs.engine.background import BackgroundLoop
from pgqrs.engine.outbox import dispatcher as outbox
from pgqrs.engine.outbox.publishers.callable import CallablePublisher
from pgqrs.engine.outbox.routes import Publisher, Route
from pgqrs.errors import ConfigError
from pgqrs.process_signals import STOP, on_signals
from pgqrs.shutdown_budgets import GRACE_SECONDS
from pgqrs.text.durations import checked_seconds
from pgqrs.text.names import checked_name
from pgqrs.types import OutboxEvent

if TYPE_CHECKING:
    from pgqrs.api.store import Store

_PATTERN = re.compile(r"[^*\s]*\*?")


def dispatcher(store: Store, name: str = "dispatcher") -> Dispatcher:
    """Publishes the store's outbox: `await dispatcher(store).to(publisher, types=("order.*",)).run_forever()`."""
    return Dispatcher(store, name)


class Dispatcher:
    """One of any number on a store. All of them must have the same routes: what is published, is so for all."""

    def __init__(self, store: Store, name: str) -> None:
        self.name: str = checked_name("dispatcher", name)
        self._store = store
        self._routes: list[Route] = []
        self._concurrency = outbox.CONCURRENCY
        self._max_attempts = outbox.MAX_ATTEMPTS
        self._deadline_seconds = outbox.DEADLINE_SECONDS
        self._loop: BackgroundLoop | None = None
        self._stopping = False

    def to(self, publisher: Publisher | Callable[[OutboxEvent], Any], *, types: Sequence[str] = ("*",)) -> Self:
        """A route: a publisher, or a function, and the types it gets, exact or with `*` at the end.

        An event goes to every route that takes its type. One that no route takes counts as published.
        """
        if isinstance(types, str) or not types or not all(isinstance(t, str) and _is_pattern(t) for t in types):
            raise ConfigError(
                f"types is a list like ('order.shipped', 'order.*'), with `*` only at the end, not {types!r}"
            )
        made: Any = publisher if hasattr(publisher, "publish") else CallablePublisher(publisher)
        self._routes.append(Route(made, types))
        return self

    def concurrency(self, count: int) -> Self:
        """How many events are published at once, of different runs; one of several routes gets at most half of it."""
        self._concurrency = checked_whole("concurrency", count, least=1, most=1_000)
        return self

    def max_attempts(self, count: int) -> Self:
        """After so many failed attempts an event is dead, and the next of its run goes on."""
        self._max_attempts = checked_whole("max_attempts", count, least=1, most=1_000_000)
        return self

    def deadline(self, seconds: float | timedelta) -> Self:
        """How long one publication may take; another dispatcher may try it after half as long again."""
        self._deadline_seconds = checked_seconds(seconds, "deadline", least=0.01)
        return self

    async def run_forever(self, *, signals: bool = False) -> None:
        """Publishes until `stop`; then lets what is under way finish, and gives back what does not.

        With `signals`, SIGTERM, SIGINT and SIGHUP stop it.
        """
        # Before it begins: a signal that a worker beside it hears must not be lost on it.
        with on_signals(self.stop, *(STOP if signals else ())):
            try:
                await self._run()
            finally:
                self._loop, self._stopping = None, False

    async def _run(self) -> None:
        made = await self._made()
        loop = self._loop = BackgroundLoop(
            f"dispatcher {self.name}", made.turn, hints=self._store.database.hints, topics=[hints.OUTBOX]
        )
        made.on_room, made.may_claim = loop.wake, lambda: not self._stopping
        if self._stopping:
            loop.stop()
        try:
            await loop.run()
            await made.close(grace_seconds=GRACE_SECONDS)
        finally:
            await made.close()

    def stop(self) -> None:
        """No more claims; `run_forever` returns soon. Idempotent, callable from a signal handler of the loop."""
        self._stopping = True
        if self._loop is not None:
            self._loop.stop()

    async def run_until_idle(self) -> None:
        """Publishes what is due now and returns when nothing is: for tests and scripts."""
        await (await self._made()).run_until_idle()

    async def _made(self) -> outbox.OutboxLoop:
        if not self._routes:
            raise ConfigError(f"dispatcher {self.name!r} has nowhere to publish to", hint="give it .to(publisher)")
        db = await self._store.ready()
        for route in self._routes:
            attach = getattr(route.publisher, "attach", None)
            if attach is not None:
                attach(db)
        return outbox.OutboxLoop(
            db,
            self._store.config,
            self._routes,
            concurrency=self._concurrency,
            max_attempts=self._max_attempts,
            deadline_seconds=self._deadline_seconds,
        )

    def __repr__(self) -> str:
        return f"<Dispatcher {self.name} {self._routes}>"


def _is_pattern(text: str) -> bool:
    return bool(text) and _PATTERN.fullmatch(text) is not None
