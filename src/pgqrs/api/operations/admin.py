"""Looking after a store: schema, queues, dead letters, workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgqrs.api import doctor
from pgqrs.api.arguments import checked_batch, checked_whole
from pgqrs.api.inline import RunContext, create_run
from pgqrs.api.operations import queue_peek
from pgqrs.api.operations.metrics import MetricsVerbs
from pgqrs.api.operations.outbox_admin import OutboxAdmin
from pgqrs.api.operations.queue_peek import MessagePage
from pgqrs.api.operations.search import OnProgress, SearchVerbs
from pgqrs.api.store import Store
from pgqrs.clock import DatabaseClock
from pgqrs.config import Config
from pgqrs.db import hints, migrations
from pgqrs.db.drivers.sqlite.driver import SQLiteDriver
from pgqrs.db.tables import messages, queues, workers
from pgqrs.db.upkeep import import_v1, invariants
from pgqrs.errors import InvalidTransition, NotFound, SchemaMismatch
from pgqrs.reports import DoctorReport, InvariantReport, QueueMetrics
from pgqrs.text.names import checked_name
from pgqrs.types import DeadLetter, WorkerInfo

# Beyond this one transaction holds the SQLite writer, or PostgreSQL's locks, longer than a lease should wait.
PURGE_BATCH = 5_000


def admin(store: Store) -> Admin:
    """The verbs for whoever looks after the store."""
    return Admin(store)


class Admin(SearchVerbs, MetricsVerbs):
    def __init__(self, store: Store) -> None:
        self._store = store
        self.outbox: OutboxAdmin = OutboxAdmin(store)

    # -- schema ------------------------------------------------------------------------------------------

    async def install(self) -> int:
        """Creates or upgrades the tables; returns their version. Safe in many processes at once."""
        return await migrations.install(self._store.database)

    async def version(self) -> int:
        """The version of the tables; 0 when there are none."""
        return await migrations.version(self._store.database)

    async def verify(self) -> None:
        """Raises SchemaNotInstalled or SchemaMismatch unless every table, column and index is there."""
        db = self._store.database
        await migrations.check(db)
        missing = (await _expected_shape()).missing_from(await migrations.shape(db))
        if missing:
            latest = migrations.latest_version()
            raise SchemaMismatch(
                f"the schema says version {latest} but lacks {', '.join(missing)}",
                hint="restore it from a backup, or install into an empty schema and copy the data",
                found=latest,
                expected=latest,
            )

    async def check_invariants(self) -> InvariantReport:
        """A list of what is broken, empty when all is well; its `unjudged` names what the tables cannot tell.

        Reads every table, in short read-only transactions: safe while workers work. See docs/reference/invariants.md.
        """
        return await invariants.check(await self._store.ready())

    async def doctor(self, *, verify: bool = False) -> DoctorReport:
        """What is well and what is not, with the command that mends it. `verify` also checks the invariants."""
        return await doctor.examine(self, verify=verify)

    @property
    def store(self) -> Store:
        return self._store

    # -- workflows ---------------------------------------------------------------------------------------

    async def create_workflow(self, name: str, params: Any = None) -> RunContext:
        """The definition and one run of it, for `await my_workflow(run_ctx, ...)` in this process."""
        return await create_run(self._store, checked_name("workflow", name), params)

    async def import_v1(
        self, *, workflows: str = "old_pgqrs_workflows", steps: str = "old_pgqrs_workflow_steps"
    ) -> int:
        """Copies executions of the former layout (one row per execution) into definitions and runs; returns how many.

        Rename the old tables first, as their names are used now. What had not ended goes on from its last completed
        step. May be run again: what was copied is passed over.
        """
        return await import_v1.import_v1(
            await self._store.ready(),
            workflows_table=workflows,
            steps_table=steps,
            max_attempts=self._store.config.max_attempts,
        )

    # -- queues ------------------------------------------------------------------------------------------

    async def queues(self) -> list[str]:
        return [queue.name for queue in await queues.list_all(await self._store.ready())]

    async def queue_metrics(self, queue: str) -> QueueMetrics:
        return await queues.metrics(await self._store.ready(), _named(queue))

    async def pause_queue(self, queue: str) -> None:
        """From now on nothing is leased from it; enqueueing, and what is leased, go on."""
        await queues.pause(await self._store.ready(), _named(queue))

    async def resume_queue(self, queue: str) -> None:
        await queues.resume(await self._store.ready(), _named(queue))
        await self._store.wake(queue)

    async def purge(self, queue: str, *, archived: bool = False, on_progress: OnProgress = None) -> int:
        """Deletes every live message, leased ones included (or every archived one); returns how many.

        In small transactions: what is enqueued meanwhile may go too. The live messages of a workflow's queue are its
        runs: they are cancelled or deleted as such, and not purged. `on_progress` is told how many more are gone.
        """
        db = await self._store.ready()
        find = queues.get if archived else queues.get_own
        queue_id = (await find(db, _named(queue))).queue_id
        total = 0
        while gone := await messages.purge(db, queue_id, batch=PURGE_BATCH, archived=archived):
            total += gone
            if on_progress is not None:
                on_progress(gone)
        return total

    async def delete_queue(self, queue: str, *, force: bool = False) -> int:
        """Removes the queue with its archive; refuses while it holds messages unless `force`."""
        return await queues.delete(await self._store.ready(), _named(queue), force=force)

    async def peek(self, queue: str, *, limit: int = 100, cursor: str | None = None) -> MessagePage:
        """What is live in a queue, in the order in which it would be taken. `page.next_cursor` leads on."""
        return await queue_peek.peek(self._store, queue, limit=limit, cursor=cursor)

    # -- dead letters ------------------------------------------------------------------------------------

    async def dead_letters(
        self, queue: str, *, limit: int = 100, after: DeadLetter | None = None
    ) -> list[DeadLetter]:
        """Messages that were read `max_attempts` times and never archived, oldest first; `after` pages on."""
        db = await self._store.ready()
        found = await queues.get(db, _named(queue))
        return await messages.dead_letters(
            db, found.queue_id, queue, limit=checked_batch("limit", limit), after=after
        )

    async def replay(self, queue: str, ids: Sequence[int] | None = None, *, on_progress: OnProgress = None) -> int:
        """Dead letters (all, or those of the ids given) start anew; returns how many."""
        db = await self._store.ready()
        queue_id = (await queues.get(db, _named(queue))).queue_id
        if ids is None:
            total = 0
            while page := await messages.dead_letters(db, queue_id, queue, limit=PURGE_BATCH, cut=0):
                total += (again := await messages.replay(db, queue_id, [letter.id for letter in page]))
                if on_progress is not None:
                    on_progress(again)
        else:
            total = await messages.replay(db, queue_id, [_checked_id("ids", each) for each in ids])
        if total:
            db.hints.announce([queue_id])
        return total

    # -- workers -----------------------------------------------------------------------------------------

    async def workers(self, queue: str | None = None) -> list[WorkerInfo]:
        """Every worker, or those of one queue: status, last sign of life, how much it holds."""
        db = await self._store.ready()
        queue_id = None if queue is None else (await queues.get(db, _named(queue))).queue_id
        return await workers.list_all(db, queue_id=queue_id)

    async def worker(self, worker_id: int) -> WorkerInfo:
        """One worker. Raises NotFound."""
        found = await workers.list_all(await self._store.ready(), worker_id=_checked_id("worker_id", worker_id))
        if not found:
            raise NotFound(f"no worker {worker_id}; it never registered here, or retention has deleted it")
        return found[0]

    async def stop_worker(self, worker_id: int) -> WorkerInfo:
        """Tells a worker, wherever it runs, to take nothing more, finish what it has and end; returns at once.

        It hears of it at once, or within a lease. Raises NotFound, and InvalidTransition for a consumer of a plain
        queue: that is a part of somebody's program, which does not ask.
        """
        found = await self.worker(worker_id)
        if not found.can_be_told_to_stop:
            raise InvalidTransition(
                f"worker {worker_id} is a consumer of queue {found.queue!r}; its program has to close it"
            )
        db = await self._store.ready()
        await workers.stop(db, worker_id)
        db.hints.announce([hints.WORKERS])
        return await self.worker(worker_id)

    async def release_worker_messages(self, worker_id: int) -> int:
        """Everything that a worker holds comes back at once, its attempt not counted; returns how many."""
        db = await self._store.ready()
        count = await messages.release_worker(db, _checked_id("worker_id", worker_id))
        db.hints.announce([queue.queue_id for queue in await queues.list_all(db)])
        return count


async def _expected_shape() -> migrations.SchemaShape:
    """What the migrations make, found out by running them on an empty database in memory."""
    db = await SQLiteDriver.open(Config("sqlite://:memory:", schema="public"), DatabaseClock())
    try:
        await migrations.install(db)
        return await migrations.shape(db)
    finally:
        await db.close()


def _checked_id(argument: str, value: int) -> int:
    return checked_whole(argument, value, least=0, most=2**63 - 1)


def _named(queue: str) -> str:
    return checked_name("queue", queue)
