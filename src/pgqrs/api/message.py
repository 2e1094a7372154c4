"""Messages: one delivery each, with the verbs that its lease allows."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pgqrs.db.tables.messages import Lease
from pgqrs.serialization import decode

if TYPE_CHECKING:
    from pgqrs.api.consumer import Consumer

T = TypeVar("T")
_VERBS = frozenset({"archive", "delete", "extend", "release"})


class Message:
    """One delivery of a message: its payload, and the verbs that its lease allows."""

    __slots__ = ("_consumer", "_lease", "_payload")
    _unread = object()

    def __init__(self, consumer: Consumer, lease: Lease) -> None:
        self._consumer = consumer
        self._lease = lease
        self._payload: Any = self._unread

    @property
    def id(self) -> int:
        return self._lease.message_id

    @property
    def queue(self) -> str:
        return self._consumer.queue

    @property
    def payload(self) -> Any:
        """What was enqueued: plain data. Raises SerializationError if the stored text cannot be read."""
        if self._payload is self._unread:
            self._payload = decode(self._lease.payload)
        return self._payload

    @overload
    def decode(self, as_type: type[T]) -> T: ...
    @overload
    def decode(self, as_type: Any) -> Any: ...
    def decode(self, as_type: Any) -> Any:
        """The payload as a dataclass, a model, or whatever type it was."""
        return decode(self._lease.payload, as_type)

    @property
    def priority(self) -> int:
        return self._lease.priority

    @property
    def attempts(self) -> int:
        """How often it has been delivered, this time included."""
        return self._lease.attempts

    @property
    def max_attempts(self) -> int:
        return self._lease.max_attempts

    @property
    def enqueued_at(self) -> datetime:
        return self._lease.enqueued_at

    @property
    def leased_until(self) -> datetime:
        """By the database's clock, as of the delivery: `extend` does not change it."""
        return self._lease.visible_after

    @property
    def lease_token(self) -> int:
        return self._lease.lease_token

    async def archive(self) -> None:
        await self._consumer.archive(self)

    async def delete(self) -> None:
        await self._consumer.delete(self)

    async def extend(self, seconds: float | timedelta) -> None:
        await self._consumer.extend(self, seconds)

    async def release(self, *, delay: float | timedelta = 0, count_attempt: bool = False) -> None:
        await self._consumer.release(self, delay=delay, count_attempt=count_attempt)

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.queue}, attempt {self.attempts} of {self.max_attempts}>"


class PlainMessage:
    """What a plain `def` handler is given: the same, its verbs without `await`."""

    def __init__(self, message: Message, loop: asyncio.AbstractEventLoop) -> None:
        self._message = message
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._message, name)
        if name not in _VERBS:
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(value(*args, **kwargs), self._loop).result()

        return call

    def __repr__(self) -> str:
        return repr(self._message)
