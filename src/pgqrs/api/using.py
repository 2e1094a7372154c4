"""Enqueueing inside the caller's own transaction: it commits or rolls back with everything else there."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Protocol, Unpack, overload

from pgqrs.api.arguments import check_texts, checked_run_id
from pgqrs.api.producer import EnqueueOptions, new_messages
from pgqrs.api.trigger import TriggerOptions, new_runs
from pgqrs.config import Config, Settings
from pgqrs.db.database import drive
from pgqrs.db.drivers.foreign import Enlisted, enlist
from pgqrs.db.runs import transitions, triggers
from pgqrs.db.tables import messages, queues, workflows
from pgqrs.engine import instrumentation
from pgqrs.errors import QueueNotFound
from pgqrs.serialization import encode
from pgqrs.text.names import checked_name, checked_step_name


class AsyncConnection(Protocol):
    """What asyncpg, psycopg's AsyncConnection and SQLAlchemy's AsyncConnection and AsyncSession have in common."""

    def close(self) -> Awaitable[Any]: ...


class SyncConnection(Protocol):
    """What sqlite3, psycopg's Connection and SQLAlchemy's Connection and Session have in common."""

    def close(self) -> None: ...


@overload
def using(connection: AsyncConnection, **settings: Unpack[Settings]) -> Enlistment: ...
@overload
def using(connection: SyncConnection, **settings: Unpack[Settings]) -> BlockingEnlistment: ...
def using(connection: Any, **settings: Unpack[Settings]) -> Enlistment | BlockingEnlistment:
    """The queues behind a connection of yours; no store is needed. Settings are the fields of `Config`.

    What is enqueued exists when your transaction commits, and waiting consumers find it by polling, within about a
    second (SQLite: a few milliseconds); `await store.wake(queue)` after the commit tells them at once.
    """
    given: dict[str, Any] = {**settings}
    return _enlisted(connection, Config(**given))


def _enlisted(connection: Any, config: Config) -> Enlistment | BlockingEnlistment:
    db = enlist(connection, schema=config.schema, audit_policy=config.audit_policy)
    enlistment = Enlistment(db, config)
    return BlockingEnlistment(enlistment) if db.blocking else enlistment


class Enlistment:
    """For connections that are awaited."""

    def __init__(self, db: Enlisted, config: Config) -> None:
        self._db = db
        self._config = config

    async def enqueue(self, queue: str, payload: Any, **options: Unpack[EnqueueOptions]) -> int:
        """The new message's id; see `Producer.enqueue`."""
        return (await self._enqueue(queue, [payload], many=False, **options))[0]

    async def enqueue_many(self, queue: str, payloads: Iterable[Any], **options: Unpack[EnqueueOptions]) -> list[int]:
        """The new ids in the order given; see `Producer.enqueue_many`."""
        return await self._enqueue(queue, payloads, many=True, **options)

    async def _enqueue(
        self, queue: str, payloads: Iterable[Any], *, many: bool, **options: Unpack[EnqueueOptions]
    ) -> list[int]:
        checked_name("queue", queue)
        new = new_messages(self._config, payloads, **options, many=many)
        if not new:
            return []
        found = await queues.get_for_messages(self._db, queue)
        ids = await messages.enqueue(self._db, found.queue_id, new)
        if not ids:
            raise QueueNotFound(queue)
        return ids

    async def trigger(
        self,
        workflow: str,
        params: Any = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TriggerOptions],
    ) -> int:
        """The new run's id; options as in `workflow(name).trigger`."""
        found = await workflows.get(self._db, checked_name("workflow", workflow))
        keys = () if idempotency_key is None else (idempotency_key,)
        new = new_runs(self._config, found, [params], keys, **options)
        with instrumentation.triggered(found.name, 1) as origin:
            run_ids = await triggers.trigger(self._db, new.with_headers(origin.headers))
            origin.made(run_ids)
        return run_ids[0]

    async def signal(self, run_id: int, name: str, payload: Any = None, *, actor: str | None = None) -> None:
        """Sends a run a signal, when your transaction commits."""
        text = encode(payload, max_bytes=self._config.max_payload_bytes)
        check_texts(actor=actor)
        await transitions.signal(
            self._db, checked_run_id(run_id), name=checked_step_name(name), payload=text, actor=actor
        )


class BlockingEnlistment:
    """For connections that are not awaited: the same verbs, without `await`."""

    def __init__(self, enlistment: Enlistment) -> None:
        self._enlistment = enlistment

    def enqueue(self, queue: str, payload: Any, **options: Unpack[EnqueueOptions]) -> int:
        return drive(self._enlistment.enqueue(queue, payload, **options))

    def enqueue_many(self, queue: str, payloads: Iterable[Any], **options: Unpack[EnqueueOptions]) -> list[int]:
        return drive(self._enlistment.enqueue_many(queue, payloads, **options))

    def trigger(
        self,
        workflow: str,
        params: Any = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TriggerOptions],
    ) -> int:
        return drive(self._enlistment.trigger(workflow, params, idempotency_key=idempotency_key, **options))

    def signal(self, run_id: int, name: str, payload: Any = None, *, actor: str | None = None) -> None:
        drive(self._enlistment.signal(run_id, name, payload, actor=actor))
