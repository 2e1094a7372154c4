"""The store: one database, and the queues in it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from pgqrs.api.arguments import checked_whole
from pgqrs.api.consumer import Consumer
from pgqrs.api.message import Message
from pgqrs.api.producer import Inlet, Producer
from pgqrs.api.run import Results
from pgqrs.config import Config
from pgqrs.db import migrations
from pgqrs.db.driver import Driver
from pgqrs.db.hints import CATALOGUE
from pgqrs.db.tables import queues, workers, workflows
from pgqrs.engine.queues.leases import LeaseHolder
from pgqrs.errors import ConfigError
from pgqrs.text.names import checked_name

log: logging.Logger = logging.getLogger("pgqrs.queue")

# For so long a trigger relies on what the one before it found out about its workflow.
_KNOWN_SECONDS = 5.0

# What was not said, where None says something.
_UNCHANGED: Any = object()


class Store:
    """A connected database. Safe to share between tasks; close it when done."""

    def __init__(self, config: Config, db: Driver) -> None:
        self.config: Config = config
        self._db = db
        self._schema_checked = False
        self._consumers: WeakSet[Consumer] = WeakSet()
        # By queue id: what a store's producers enqueue at the same time goes in together.
        self._inlets: dict[int, Inlet] = {}
        self.results: Results = Results(self)
        # queue id -> until when (monotonic) nobody need ask again whether it has workers
        self._workers_known: dict[int, float] = {}
        self._workflows_known: dict[str, tuple[float, workflows.WorkflowRow]] = {}

    async def create_queue(self, name: str) -> None:
        """Makes the queue; one that is there already stays as it is."""
        await queues.create(await self.ready(), checked_name("queue", name))

    async def create_workflow(self, name: str, *, dead_letter: str | None = _UNCHANGED) -> None:
        """Makes the definition and its queue; those that are there already stay as they are.

        `dead_letter` names a workflow, which must exist, that gets a run whenever one of this one's ends in ERROR;
        None takes that back.
        """
        db = await self.ready()
        await workflows.create(db, checked_name("workflow", name))
        if dead_letter is not _UNCHANGED:
            if dead_letter is not None and checked_name("workflow", dead_letter) == name:
                raise ConfigError(f"workflow {name!r} cannot be its own dead letter", hint="name another one")
            await workflows.set_dead_letter(db, name, dead_letter)
        db.hints.announce([CATALOGUE])

    async def producer(self, queue: str) -> Producer:
        """Puts messages into the queue; refuses a workflow's, whose messages are its runs."""
        db = await self.ready()
        found = await queues.get_for_messages(db, checked_name("queue", queue))
        inlet = self._inlets.get(found.queue_id)
        if inlet is None:
            inlet = self._inlets[found.queue_id] = Inlet(db, queue=found.name, queue_id=found.queue_id)
        return Producer(inlet, self.config)

    async def consumer(self, queue: str, *, name: str | None = None, port: int = 0) -> Consumer:
        """Takes messages out of the queue, registered as a worker under `name`; refuses a workflow's queue."""
        db = await self.ready()
        found = await queues.get_own(db, checked_name("queue", queue))
        name = checked_name("worker", name if name is not None else _process_name())
        checked_whole("port", port, least=0, most=65_535)
        worker_id = await workers.register(
            db, queue_id=found.queue_id, name=name, port=port, info={"pid": os.getpid()}
        )
        registered = (name, port, {"pid": os.getpid()})
        holder = LeaseHolder(
            db, queue=found.name, queue_id=found.queue_id, worker_id=worker_id, registered=registered
        )
        consumer = Consumer(holder, self.config)
        self._consumers.add(consumer)
        return consumer

    async def consume(
        self, queue: str, *, batch_size: int = 10, lease_seconds: float | timedelta | None = None
    ) -> AsyncIterator[Message]:
        """Messages as they come, for ever; each is yours until its lease ends, so archive it when it is done."""
        async with await self.consumer(queue) as consumer:
            async for message in consumer.messages(batch_size=batch_size, lease_seconds=lease_seconds):
                yield message

    async def wake(self, queue: str) -> None:
        """Tells waiting consumers to look: for whoever enqueued in a transaction of their own."""
        db = await self.ready()
        db.hints.announce([(await queues.get(db, checked_name("queue", queue))).queue_id])

    async def close(self) -> None:
        """Hands back what its consumers hold and lets go of every connection. Idempotent."""
        try:
            await self.results.close()
            ends = await asyncio.gather(
                *(consumer.close() for consumer in list(self._consumers)), return_exceptions=True
            )
            for error in ends:
                if isinstance(error, Exception):
                    # What was held comes back when its lease ends; the connections must be let go of all the same.
                    log.warning("a consumer could not sign off: %s", error)
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        await self._db.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def workflow(self, name: str) -> workflows.WorkflowRow:
        """The workflow of that name; looked up anew after some seconds, not for each of many triggers."""
        until, found = self._workflows_known.get(name, (0.0, None))
        if found is None or until < time.monotonic():
            found = await workflows.get(await self.ready(), name)
            self._workflows_known[name] = (time.monotonic() + _KNOWN_SECONDS, found)
        return found

    def forget_workflows(self) -> None:
        """A worker has told what its workflows take: the next trigger looks them up."""
        self._workflows_known.clear()

    def knows_of_workers(self, queue_id: int) -> bool:
        return self._workers_known.get(queue_id, 0.0) > time.monotonic()

    def remember_workers(self, queue_id: int) -> None:
        """A trigger looked for workers: for some seconds the next ones need not."""
        self._workers_known[queue_id] = time.monotonic() + _KNOWN_SECONDS

    async def ready(self) -> Driver:
        """The database, once its schema is known to be the one this code works with."""
        if not self._schema_checked:
            await migrations.check(self._db, where=self.config.safe_dsn)
            self._schema_checked = True
        return self._db

    @property
    def database(self) -> Driver:
        """The database whatever is in it, for `admin`."""
        return self._db

    def __repr__(self) -> str:
        return f"<Store {self.config.safe_dsn} schema={self.config.schema}>"


class BorrowingStore(Store):
    """A store on a connection of another one: closing it lets go of its consumers, and of nothing else."""

    async def _disconnect(self) -> None:
        """The connection is not its own."""


def _process_name() -> str:
    # Host names may hold what worker names may not.
    host = "".join(c if c.isalnum() or c in "_.-" else "_" for c in socket.gethostname() if c.isascii())
    return f"{host.lstrip('.-') or 'host'}:{os.getpid()}"
