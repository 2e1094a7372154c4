"""Consumers: messages out of a queue, each held under a lease until it is archived."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from pgqrs.api.arguments import checked_batch, checked_whole
from pgqrs.api.message import Message
from pgqrs.api.message_handler import caller_of
from pgqrs.config import Config
from pgqrs.db.tables import messages, workers
from pgqrs.db.tables.messages import Fence, Lease
from pgqrs.engine.idle import IdlePoller
from pgqrs.engine.queues.leases import LeaseHolder
from pgqrs.engine.queues.processor import ProcessOptions, QueueProcessor
from pgqrs.errors import ConfigError, LeaseLost, PgqrsError
from pgqrs.retry import RetryPolicy, checked_policy
from pgqrs.shutdown_budgets import DEQUEUE_HAND_BACK_SECONDS, GRACE_SECONDS
from pgqrs.text.durations import checked_seconds

log: logging.Logger = logging.getLogger("pgqrs.queue")

MOST_CONCURRENCY = 10_000


class Consumer:
    """Takes messages out of one queue.

    The single verbs raise LeaseLost when somebody else has the message by now; the `_many` verbs return the ids that
    they changed. Either way a lost lease changes nothing.
    """

    def __init__(self, holder: LeaseHolder, config: Config) -> None:
        self.queue: str = holder.queue
        self._holder = holder
        self._db = holder.db
        self._config = config
        # Fetched ahead by an iteration and not handed out yet: nobody has tried them.
        self._ahead: set[int] = set()
        self._returning: set[asyncio.Future[None]] = set()
        self._handlings: list[QueueProcessor] = []
        self._closing: asyncio.Task[None] | None = None

    @property
    def worker_id(self) -> int:
        return self._holder.worker_id

    # -- taking ------------------------------------------------------------------------------------------

    async def dequeue(
        self,
        batch_size: int = 1,
        *,
        lease_seconds: float | timedelta | None = None,
        wait_seconds: float | timedelta = 0,
    ) -> list[Message]:
        """Up to `batch_size` messages by priority, then age; waits up to `wait_seconds` for the first."""
        batch = checked_batch("batch_size", batch_size)
        lease = self._lease_seconds(lease_seconds)
        patience = checked_seconds(wait_seconds, "wait_seconds")
        if not patience:
            return await self._lease(batch, lease)
        deadline = time.monotonic() + patience
        idling = IdlePoller(self._db, interval=self._config.poll_interval_seconds)
        with self._db.hints.subscribed([self._holder.queue_id]) as bell:
            while True:
                # Cleared before looking: a hint that comes while we look makes us look once more.
                bell.clear()
                taken = await self._lease(batch, lease)
                left = deadline - time.monotonic()
                if taken or left <= 0:
                    return taken
                await idling.wait(bell, [self._holder.queue_id], at_most=left)

    async def messages(
        self, *, batch_size: int = 10, lease_seconds: float | timedelta | None = None
    ) -> AsyncIterator[Message]:
        """Messages as they come, until the consumer is closed; leased in batches, handed out one by one."""
        lease = self._lease_seconds(lease_seconds)
        while self._closing is None:
            try:
                fetched = await self.dequeue(batch_size, lease_seconds=lease, wait_seconds=5)
            except ConfigError:
                if self._closing is not None:
                    return
                raise
            self._ahead |= {message.id for message in fetched}
            try:
                for message in fetched:
                    self._ahead.discard(message.id)
                    if await self._still_fresh(message, lease):
                        yield message
            finally:
                # Left by break or by an error: what nobody has seen goes back, and counts for nothing.
                await self.release_many([m for m in fetched if m.id in self._ahead])
                self._ahead -= {message.id for message in fetched}

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def _still_fresh(self, message: Message, lease_seconds: float) -> bool:
        """A message that waited its turn behind slow ones gets its full lease again before it is handed out."""
        _, ends = self._holder.known(message.id)
        if ends - time.monotonic() > lease_seconds / 2:
            return True
        return bool(await self.extend_many([message], lease_seconds))

    async def _lease(self, batch: int, lease_seconds: float) -> list[Message]:
        self._check_open()
        taking = asyncio.ensure_future(self._holder.take(batch, lease_seconds))
        try:
            leases = await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The lease may be taken all the same; what nobody will handle goes straight back. In a task of its own:
            # neither a second cancellation nor a database that is away may hold up, or end, this.
            returning = asyncio.ensure_future(self._hand_back(taking))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            await asyncio.wait({returning}, timeout=DEQUEUE_HAND_BACK_SECONDS)
            raise
        return [Message(self, lease) for lease in leases]

    async def _hand_back(self, taking: asyncio.Future[list[Lease]]) -> None:
        try:
            leases = await taking
            if leases:
                await self.release_many([Message(self, lease) for lease in leases])
        except PgqrsError as error:
            log.debug("not handed back, its lease will run out: %s", error)

    # -- handling ----------------------------------------------------------------------------------------

    async def process(
        self,
        handler: Callable[[Any], Any],
        *,
        concurrency: int = 10,
        lease_seconds: float | timedelta | None = None,
        retry: RetryPolicy | None = None,
        keep: bool = True,
        until_idle: bool = False,
        grace_seconds: float | timedelta = GRACE_SECONDS,
    ) -> int:
        """Calls the handler with each message, up to `concurrency` at once, until the consumer is closed.

        The handler is `async` or plain (then it runs in a thread), and takes the message; or its payload, when its
        parameter is annotated with another type. When it returns, the message is archived (deleted unless `keep`).
        When it raises, the message comes back after a backoff, the attempt counted; after its last attempt, and at
        once for PermanentError, it is a dead letter. What the handler settles itself is left alone. Leases are
        renewed while it works. Cancelled, it hands back what is not done.

        Returns how many messages were handled; with `until_idle`, as soon as none is left.
        """
        self._check_open()
        manner = ProcessOptions(
            concurrency=checked_whole("concurrency", concurrency, least=1, most=MOST_CONCURRENCY),
            lease_seconds=self._lease_seconds(lease_seconds),
            grace_seconds=checked_seconds(grace_seconds, "grace_seconds"),
            retry=checked_policy("process", retry),
            keep=keep,
            until_idle=until_idle,
        )
        handling = QueueProcessor(self._holder, self._config, caller_of(handler, self), manner)
        self._handlings.append(handling)
        try:
            return await handling.run()
        finally:
            self._handlings.remove(handling)

    # -- settling ----------------------------------------------------------------------------------------

    async def archive(self, message: int | Message) -> None:
        """Done: keeps it in the archive."""
        await self._one(message, self.archive_many, "archived")

    async def archive_many(self, given: Iterable[int | Message]) -> list[int]:
        return await self._settle(given, lambda fences: messages.archive(self._db, fences))

    async def delete(self, message: int | Message) -> None:
        """Done: nothing is kept."""
        await self._one(message, self.delete_many, "deleted")

    async def delete_many(self, given: Iterable[int | Message]) -> list[int]:
        return await self._settle(given, lambda fences: messages.delete(self._db, fences))

    async def extend(self, message: int | Message, seconds: float | timedelta) -> None:
        """Keeps it for `seconds` more, counted from now."""
        await self._one(message, lambda one: self.extend_many(one, seconds), "extended")

    async def extend_many(self, given: Iterable[int | Message], seconds: float | timedelta) -> list[int]:
        length = checked_seconds(seconds, "seconds", least=1)
        fences = self._fences(given)
        kept = await self._holder.extend(fences, length)
        return [message_id for message_id, _ in fences if message_id in kept]

    async def release(
        self, message: int | Message, *, delay: float | timedelta = 0, count_attempt: bool = False
    ) -> None:
        """Hands it back, visible to everybody after `delay` seconds.

        A hand-back does not count as an attempt; say `count_attempt=True` when it failed here.
        """
        await self._one(
            message,
            lambda one: self.release_many(one, delay=delay, count_attempt=count_attempt),
            "released",
        )

    async def release_many(
        self, given: Iterable[int | Message], *, delay: float | timedelta = 0, count_attempt: bool = False
    ) -> list[int]:
        seconds = checked_seconds(delay, "delay")
        done = await self._settle(
            given,
            lambda fences: messages.release(self._db, fences, delay=seconds, count_attempt=count_attempt),
        )
        if done and not seconds:
            self._db.hints.announce([self._holder.queue_id])
        return done

    async def _settle(
        self, given: Iterable[int | Message], change: Callable[[Sequence[Fence]], Awaitable[set[int]]]
    ) -> list[int]:
        fences = self._fences(given)
        done = await change(fences) if fences else set()
        self._holder.forget(fences)
        return [message_id for message_id, _ in fences if message_id in done]

    async def _one(
        self,
        message: int | Message,
        change: Callable[[Sequence[int | Message]], Awaitable[list[int]]],
        what: str,
    ) -> None:
        if not await change([message]):
            message_id = message if isinstance(message, int) else message.id
            raise LeaseLost(
                f"message {message_id} of queue {self.queue!r} is not held by this consumer (any more): "
                f"it was settled already, or its lease ran out and somebody took it; it was not {what}",
                message_id=message_id,
            )

    def _fences(self, given: Iterable[int | Message]) -> list[Fence]:
        """Who says which lease: a delivery names its own, an id the last one that this consumer took."""
        fences: dict[int, int] = {}
        for each in given:
            if isinstance(each, Message):
                fences[each.id] = each.lease_token
            elif not isinstance(each, int) or isinstance(each, bool):
                raise ConfigError(f"a message, or its id (a whole number), is wanted, not {each!r}")
            elif (token := self._holder.known(each)[0]) is not None:
                fences[each] = token
        return list(fences.items())

    # -- life --------------------------------------------------------------------------------------------

    async def heartbeat(self) -> None:
        """A sign of life; `dequeue` gives one by itself now and then."""
        await self._holder.beat()

    async def close(self, *, failed: bool = False) -> None:
        """Hands back what is still held and signs off. Idempotent; whoever calls it waits until it is done.

        `failed` counts the attempt of what was handed out: otherwise a message whose handler always raises would come
        back for ever. `async with` says so when an exception leaves it.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._sign_off(failed=failed))
        await asyncio.shield(self._closing)

    async def _sign_off(self, *, failed: bool) -> None:
        """Best effort: when the database is away, leases end by themselves."""
        await asyncio.gather(*(handling.stop() for handling in self._handlings))
        if self._returning:
            await asyncio.wait(set(self._returning), timeout=DEQUEUE_HAND_BACK_SECONDS)
        try:
            await self.release_many(list(self._ahead))
            await self.release_many(self._holder.message_ids, count_attempt=failed)
            await workers.stop(self._db, self.worker_id)
        except PgqrsError as error:
            log.warning("consumer %d of queue %s could not sign off: %s", self.worker_id, self.queue, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An error inside an `async for` over a generator arrives here as GeneratorExit, like a break.
        failed = kind is not None and not issubclass(kind, asyncio.CancelledError | KeyboardInterrupt | SystemExit)
        await self.close(failed=failed)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise ConfigError("this consumer is closed", hint="ask the store for a new one")

    def _lease_seconds(self, given: float | timedelta | None) -> float:
        return checked_seconds(self._config.lease_seconds if given is None else given, "lease_seconds", least=1)

    def __repr__(self) -> str:
        return f"<Consumer {self.worker_id} of {self.queue}>"
