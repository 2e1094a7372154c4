"""SQLite: one writer thread that commits many units of work at once, and readers beside it."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakValueDictionary

from pgqrs import faults
from pgqrs.audit import AuditPolicy
from pgqrs.clock import Clock
from pgqrs.config import Config
from pgqrs.db.database import Database, Kind, Row, WorkFailed
from pgqrs.db.driver import Owner
from pgqrs.db.drivers.sqlite.commit_watch import DataVersionWatcher
from pgqrs.db.drivers.sqlite.file import SQLiteFile
from pgqrs.db.drivers.sqlite.session import DIALECT, Job, SqliteSession, driven, settle
from pgqrs.db.hints import Hints
from pgqrs.db.queries import Query
from pgqrs.error_copies import copy_of
from pgqrs.errors import ConnectionFailed

T = TypeVar("T")
log: logging.Logger = logging.getLogger("pgqrs.db")
# One commit takes what has gathered, but no more than this: beyond it the first caller waits for the last.
MOST_UNITS_PER_COMMIT = 500
MOST_SECONDS_PER_COMMIT = 0.02
READERS = 2
# A reader looks up from its statement after so many steps of SQLite's machine: some tenths of a millisecond.
LOOK_UP_EVERY = 10_000


class SQLiteDriver:
    """The pool: hands units of work to the writer, and reads to the readers."""

    dialect = DIALECT
    retried = False
    several_processes = True
    file_class: ClassVar[type[SQLiteFile]] = SQLiteFile
    # Stores of one process on one file share their hints, so that they wake each other at once.
    _hints_by_file: ClassVar[WeakValueDictionary[str, Hints]] = WeakValueDictionary()

    def __init__(self, path: str, clock: Clock, audit_policy: AuditPolicy) -> None:
        self.file: SQLiteFile = self.file_class(path)
        self.clock = clock
        self.audit_policy = audit_policy
        self._owner = Owner()
        self._writes: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._readers_started = False
        self._closed = False
        self._gate = threading.Lock()
        # The writer's own: what it has taken in this turn, and whether it was told to end.
        self._taken: list[Job] = []
        self._is_stopping = False
        self.hints: Hints = Hints() if self.file.in_memory else self._shared_hints(self.file.real_path)
        self._watcher = DataVersionWatcher(self.file.connect, self.hints)
        if self.several_processes and not self.file.in_memory:
            self.hints.listeners.append(self._watcher.look)

    @classmethod
    async def open(cls, config: Config, clock: Clock) -> Self:
        driver = cls(config.path, clock, config.audit_policy)
        connection = await asyncio.to_thread(driver.file.connect)
        driver._start(driver._write_forever, connection, "writer")
        return driver

    # -- the caller's side -------------------------------------------------------------------------------

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        del idempotent  # A commit on this machine either happened or raised: there is no lost reply.
        self._owner.check()
        loop = asyncio.get_running_loop()
        job = Job(work, loop, loop.create_future(), may_be_lost=kind is Kind.LEASE)
        # Another thread's loop may close the store: nothing may get into line behind the word to stop.
        with self._gate:
            if self._closed:
                raise ConnectionFailed("this store is closed", hint="connect again")
            (self._reads if kind is Kind.READ and self._has_readers() else self._writes).put(job)
        result: T = await job.future
        return result

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        return await self.perform(lambda unit: unit.fetch(query, **params), kind=Kind.UNIT, idempotent=False)

    async def execute(self, query: Query, **params: Any) -> int:
        return await self.perform(lambda unit: unit.execute(query, **params), kind=Kind.UNIT, idempotent=False)

    async def close(self) -> None:
        if self._owner.is_child():
            # The threads are the parent's, and the connections.
            self._closed = True
            return
        with self._gate:
            first, self._closed = not self._closed, True
        if first:
            # All of them are told before the first await: a cancelled close must not leave threads for ever.
            if self._watcher.look in self.hints.listeners:
                self.hints.listeners.remove(self._watcher.look)
            self._watcher.stop()
            self._writes.put(None)
            for _ in range(READERS):
                self._reads.put(None)
        # The writer ends last, when all the others have.
        await asyncio.to_thread(self._threads[0].join)

    @classmethod
    def _shared_hints(cls, real_path: str) -> Hints:
        # Not those of a parent that forked: their lock may be held, and those who wait there are not here.
        key = f"{os.getpid()}:{real_path}"
        hints = cls._hints_by_file.get(key)
        if hints is None:
            hints = cls._hints_by_file[key] = Hints()
        return hints

    # -- the database threads' side ----------------------------------------------------------------------

    def _start(self, target: Callable[[Any], None], connection: Any, role: str) -> None:
        thread = threading.Thread(target=target, args=(connection,), name=f"pgqrs-{role}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _has_readers(self) -> bool:
        if self.file.in_memory:
            return False
        if not self._readers_started:
            try:
                self._start(lambda _: self._read_forever(), None, "reader")
            except RuntimeError:
                # No more threads are to be had: the writer reads, too.
                return False
            self._readers_started = True
            with suppress(RuntimeError):
                for _ in range(READERS - 1):
                    self._start(lambda _: self._read_forever(), None, "reader")
        return True

    def _read_forever(self) -> None:
        session: SqliteSession | None = None
        while (job := self._reads.get()) is not None:
            try:
                if session is None:
                    session = SqliteSession(self.file.connect(), self.clock, self.audit_policy)
                # Whoever asked has given up: the statement ends, and the reader is there for others.
                session.connection.set_progress_handler(job.future.cancelled, LOOK_UP_EVERY)
                session.connection.execute("begin")
                try:
                    job.result = driven(session, job.work)
                finally:
                    session.connection.execute("rollback")
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller, whatever it is
                job.error = self.file.translated(error)
                if session is not None and session.connection.in_transaction:
                    # It would refuse every `begin` to come.
                    _end(session.connection)
                    session = None
            settle([job])
        if session is not None:
            session.connection.close()

    def _write_forever(self, connection: Any) -> None:
        session = SqliteSession(
            connection,
            self.clock,
            self.audit_policy,
            is_trouble=self.file.is_trouble,
            integrity_error=self.file.integrity_error,
        )
        while not self._is_stopping and (job := self._next_write()) is not None:
            try:
                if session.connection is None:
                    session.connection = self.file.connect()
                self._commit_together(session, job)
            except BaseException as error:  # noqa: BLE001 - without this thread every call to come would wait for ever
                self._start_over(session, error)
            self._taken.clear()
        # The last connection to close moves everything from the log into the file: that shall be this one.
        self._watcher.close()
        for reader in self._threads[1:]:
            reader.join()
        if session.connection is not None:
            session.connection.close()

    def _next_write(self) -> Job | None:
        """Waits for the next job; None when the thread is to end."""
        job = self._writes.get()
        if job is None:
            self._is_stopping = True
        else:
            self._taken.append(job)
        return job

    def _start_over(self, session: SqliteSession, error: BaseException) -> None:
        """The last resort: those who wait are told, and the next turn has a new connection."""
        waiting = [job for job in self._taken if not job.is_settled]
        if session.connection is None:
            # There was none to begin with: nothing was done.
            for job in waiting:
                job.error = copy_of(error)
        else:
            log.error("the writer of %s starts over after an unexpected error", self.file.path, exc_info=error)
            for job in waiting:
                job.error = ConnectionFailed(
                    f"the writer of {self.file.path!r} met an unexpected error ({type(error).__name__}: {error}); "
                    "the call may be written or not",
                    ambiguous=True,
                )
                job.error.__cause__ = error
        settle(waiting)
        if self.file.in_memory:
            # Another connection would be another database.
            self._roll_back(session.connection)
        elif session.connection is not None:
            # Its transaction, or its settings, may not be what they should be.
            _end(session.connection)
            session.connection = None
            self.file.forget_log()

    def _commit_together(self, session: SqliteSession, first: Job) -> None:
        """One transaction for the first job and for those that have gathered."""
        done: list[Job] = []
        job: Job | None = first
        # Alone: whoever has gathered meanwhile waits for a sync anyway.
        if self.file.can_skip_sync and first.may_be_lost and self._writes.empty():
            self._commit_without_sync(session, first)
            settle([first])
            return
        try:
            self._begin(session.connection)
            until = time.monotonic() + MOST_SECONDS_PER_COMMIT
            while job is not None:
                done.append(job)
                self._run_in_savepoint(session, job)
                job = None
                if len(done) < MOST_UNITS_PER_COMMIT and time.monotonic() < until and not self._writes.empty():
                    job = self._next_write()
            _commit(session.connection)
        except BaseException as error:  # noqa: BLE001 - every waiting caller must hear of it
            self._roll_back(session.connection)
            if len(done) > 1:
                # Nothing of the batch is in the file. One by one, so that a bad one hurts only itself.
                for each in done:
                    each.result = each.error = None
                    each.in_doubt = self.file.is_unconfirmed(error)
                    self._commit_alone(session, each)
                    settle([each])
                return
            if not done:
                # The file could not be had at all: whoever waits behind would wait as long again, one by one.
                done.append(first)
                while not self._is_stopping and not self._writes.empty():
                    waiting = self._next_write()
                    done += [waiting] if waiting is not None else []
            for each in done:
                meaning = self._explained(session, error)
                each.error = copy_of(meaning) if len(done) > 1 else meaning
        settle(done)

    def _commit_without_sync(self, session: SqliteSession, job: Job) -> None:
        """A lease. The next commit that is synced takes it along; a power cut before that takes its holder, too."""
        session.connection.execute("pragma synchronous = normal")
        try:
            self._commit_alone(session, job)
        finally:
            session.connection.execute("pragma synchronous = full")

    def _commit_alone(self, session: SqliteSession, job: Job) -> None:
        try:
            self._begin(session.connection)
            self._run_in_savepoint(session, job)
            _commit(session.connection)
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            self._roll_back(session.connection)
            job.error = self._explained(session, error, in_doubt=job.in_doubt)

    def _explained(self, session: SqliteSession, error: BaseException, *, in_doubt: bool = False) -> BaseException:
        """For the only unit of a transaction."""
        if session.is_handed_over and isinstance(error, self.file.integrity_error):
            # At the commit: we have no constraints that wait until then, so it is one of the user's.
            return WorkFailed(error)
        return self.file.translated(error, in_doubt=in_doubt)

    def _begin(self, connection: Any) -> None:
        # IMMEDIATE: a transaction that reads first and writes later could fail for good half way.
        def begin() -> None:
            # Turso: a BEGIN that found the file busy leaves its transaction open.
            self._roll_back(connection)
            connection.execute("begin immediate")

        self.file.until_not_busy(begin)
        self.file.check()

    def _run_in_savepoint(self, session: SqliteSession, job: Job) -> None:
        """The job's own error stays with the job; an error that ended the whole transaction is raised."""
        connection = session.connection
        session.begin_unit()
        connection.execute("savepoint unit")
        try:
            job.result = driven(session, job.work, again=lambda: connection.execute("rollback to unit"))
        except BaseException as error:
            if not connection.in_transaction:
                raise
            job.error = self.file.translated(error, in_doubt=job.in_doubt)
            connection.execute("rollback to unit")
        connection.execute("release unit")

    def _roll_back(self, connection: Any) -> None:
        # An error says that the transaction is gone already, which is what was wanted. Any error: pyturso's are not
        # all of one tree, and one that got out of here would end the writer's thread, and with it every call to come.
        with suppress(Exception):
            if connection.in_transaction:
                connection.execute("rollback")


def _end(connection: Any) -> None:
    with suppress(Exception):
        connection.close()


def _commit(connection: Any) -> None:
    if faults.armed:
        faults.reach_commit(connection)
    connection.execute("commit")
