"""Producers: messages into a queue, durable when the call returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from pgqrs.api.arguments import checked_batch, checked_priority, checked_time, checked_whole
from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.tables import messages, queues
from pgqrs.db.tables.messages import NewMessage
from pgqrs.engine.batching import Batcher
from pgqrs.engine.definitions.arguments import each_checked
from pgqrs.errors import ConfigError, QueueNotFound
from pgqrs.serialization import encode
from pgqrs.text.durations import checked_seconds

# Beyond this a statement gains nothing by growing, and the first of a batch waits for the last.
MOST_TOGETHER = 1_000


class EnqueueOptions(TypedDict, total=False):
    """How a message is enqueued; higher priority comes first."""

    delay: float | timedelta
    run_at: datetime | None
    priority: int
    max_attempts: int | None


class Inlet:
    """The way into one queue, shared by a store's producers: messages enqueued at the same time go in together."""

    def __init__(self, db: Driver, *, queue: str, queue_id: int) -> None:
        self.queue: str = queue
        self._db = db
        self._queue_id = queue_id
        self.together: Batcher[NewMessage, int] = Batcher(self.write, most=MOST_TOGETHER)

    async def write(self, new: Sequence[NewMessage]) -> list[int]:
        """The new ids in the order given: all of them are stored, or none."""
        ids = await messages.enqueue(self._db, self._queue_id, new)
        if not ids:
            # The queue was deleted since; perhaps one of the same name has taken its place.
            self._queue_id = (await queues.get_for_messages(self._db, self.queue)).queue_id
            ids = await messages.enqueue(self._db, self._queue_id, new)
            if not ids:
                raise QueueNotFound(self.queue)
        self._db.hints.announce([self._queue_id])
        return ids


class Producer:
    """Puts messages into one queue."""

    def __init__(self, inlet: Inlet, config: Config) -> None:
        self.queue: str = inlet.queue
        self._inlet = inlet
        self._config = config

    async def enqueue(self, payload: Any, **options: Unpack[EnqueueOptions]) -> int:
        """The new message's id. Visible at once, `delay` seconds from now, or at `run_at`."""
        [new] = new_messages(self._config, [payload], **options, many=False)
        return await self._inlet.together.add(new)

    async def enqueue_many(self, payloads: Iterable[Any], **options: Unpack[EnqueueOptions]) -> list[int]:
        """The new ids in the order given: all of them are stored, or none."""
        new = new_messages(self._config, payloads, **options)
        return await self._inlet.write(new) if new else []

    def __repr__(self) -> str:
        return f"<Producer {self.queue}>"


def new_messages(
    config: Config,
    payloads: Iterable[Any],
    *,
    delay: float | timedelta = 0,
    run_at: datetime | None = None,
    priority: int = 0,
    max_attempts: int | None = None,
    many: bool = True,
) -> list[NewMessage]:
    """Everything checked and encoded, before anything is written; of `many`, errors name the item."""
    if isinstance(payloads, str | bytes | dict):
        raise ConfigError(
            f"enqueue_many takes a list of payloads, not one {type(payloads).__name__}", hint="use enqueue"
        )
    if run_at is not None and delay:
        raise ConfigError("give either delay or run_at, not both")
    seconds = checked_seconds(delay, "delay")
    at = checked_time("run_at", run_at)
    checked_priority(priority)
    attempts = config.max_attempts if max_attempts is None else max_attempts
    checked_whole("max_attempts", attempts, least=1, most=2**31 - 1)
    most_bytes = config.max_payload_bytes
    texts = each_checked(lambda payload: encode(payload, max_bytes=most_bytes), payloads, many=many)
    new = [NewMessage(text, priority, at, seconds, attempts) for text in texts]
    if new:
        checked_batch("the number of messages in one call", len(new))
    return new
