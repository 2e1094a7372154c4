"""SQLite: one writer thread that commits many units of work at once, and readers beside it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakValueDictionary

from pgqrs import faults
from pgqrs.clock import Clock
from pgqrs.config import Config
from pgqrs.db.database import Database, Kind, Row, WorkFailed, drive
from pgqrs.db.dialect import Dialect
from pgqrs.db.driver import Owner
from pgqrs.db.drivers.sqlite_file import SQLiteFile
from pgqrs.db.drivers.sqlite_watch import DataVersionWatcher
from pgqrs.db.hints import Hints
from pgqrs.db.queries import Query, to_sqlite, with_times
from pgqrs.errors import ConnectionFailed
from pgqrs.journal import Journal

T = TypeVar("T")
DIALECT = Dialect("sqlite")

# One commit takes what has gathered, but no more than this: beyond it the first caller waits for the last.
MOST_UNITS_PER_COMMIT = 500
MOST_SECONDS_PER_COMMIT = 0.02
READERS = 2
# A reader looks up from its statement after so many steps of SQLite's machine: some tenths of a millisecond.
LOOK_UP_EVERY = 10_000

Unit = Callable[[Database], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Job:
    """A unit of work on its way to a database thread, and the future that its caller waits on."""

    work: Unit
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    # By a power cut: it is as if it had not happened then.
    may_be_lost: bool = False
    result: Any = None
    error: BaseException | None = None
    # A commit that it was part of was not confirmed: whatever comes of it now, it may be in the file.
    in_doubt: bool = False

    def settle(self) -> None:
        """On the caller's loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


@dataclass(slots=True)
class Session:
    """A connection inside a transaction: what a unit of work sees as its database."""

    connection: Any
    clock: Clock
    journal: Journal
    dialect: Dialect = DIALECT
    retried: bool = False
    # Whether an error of the library tells of the file, and not of the statement.
    is_trouble: Callable[[BaseException], bool] = SQLiteFile.is_trouble
    trouble: Exception | None = None
    # Whether statements of the user's have run in this unit.
    is_handed_over: bool = False

    def begin_unit(self) -> None:
        """Another unit of work on the same connection."""
        self.trouble, self.is_handed_over = None, False

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        cursor = self._run(query, params)
        return with_times([column[0] for column in cursor.description or ()], cursor.fetchall())

    async def execute(self, query: Query, **params: Any) -> int:
        return max(0, int(self._run(query, params).rowcount))

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        del kind, idempotent
        return await work(self)

    async def run_as_given(self, sql: str, arguments: Sequence[Any]) -> list[Row]:
        self.is_handed_over = True
        try:
            rows: list[Row] = self.connection.execute(sql, tuple(arguments)).fetchall()
        except Exception as error:
            if self.trouble is None and self.is_trouble(error):
                self.trouble = error
            raise
        return rows

    def _run(self, query: Query, params: Mapping[str, Any]) -> Any:
        if faults.armed:
            faults.reach_sql(query.name, self.connection)
        statement = query.compiled(self.dialect, "named")
        # The database's clock is this machine's: asked here it is asked once, and not for every row.
        given = {**params, "now": self.clock.now() or time.time_ns() // 1000}
        # Turso refuses names that the statement does not have.
        return self.connection.execute(
            statement.sql, {p.name: to_sqlite(given[p.name]) for p in statement.parameters}
        )


class SQLiteDriver:
    """The pool: hands units of work to the writer, and reads to the readers."""

    dialect = DIALECT
    retried = False
    several_processes = True
    file_class: ClassVar[type[SQLiteFile]] = SQLiteFile
    # Stores of one process on one file share their hints, so that they wake each other at once.
    _hints_by_file: ClassVar[WeakValueDictionary[str, Hints]] = WeakValueDictionary()

    def __init__(self, path: str, clock: Clock, journal: Journal) -> None:
        self.file = self.file_class(path)
        self.clock = clock
        self.journal = journal
        self._owner = Owner()
        self._writes: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._readers_started = False
        self._closed = False
        self._gate = threading.Lock()
        self.hints = Hints() if self.file.in_memory else self._shared_hints(self.file.real_path)
        self._watcher = DataVersionWatcher(self.file.connect, self.hints)
        if self.several_processes and not self.file.in_memory:
            self.hints.listeners.append(self._watcher.look)

    @classmethod
    async def open(cls, config: Config, clock: Clock) -> Self:
        driver = cls(config.path, clock, config.journal)
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
                raise ConnectionFailed("this store is closed; connect again")
            (self._reads if kind is Kind.READ and self._has_readers() else self._writes).put(job)
        result: T = await job.future
        return result

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        return await self.perform(lambda unit: unit.fetch(query, **params), kind=Kind.UNIT, idempotent=False)

    async def execute(self, query: Query, **params: Any) -> int:
        return await self.perform(lambda unit: unit.execute(query, **params), kind=Kind.UNIT, idempotent=False)

    async def close(self) -> None:
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
        hints = cls._hints_by_file.get(real_path)
        if hints is None:
            hints = cls._hints_by_file[real_path] = Hints()
        return hints

    # -- the database threads' side ----------------------------------------------------------------------

    def _start(self, target: Callable[[Any], None], connection: Any, role: str) -> None:
        thread = threading.Thread(target=target, args=(connection,), name=f"pgqrs-{role}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _has_readers(self) -> bool:
        if self.file.in_memory:
            return False
        if not self._readers_started:
            self._readers_started = True
            for _ in range(READERS):
                self._start(lambda _: self._read_forever(), None, "reader")
        return True

    def _read_forever(self) -> None:
        session: Session | None = None
        while (job := self._reads.get()) is not None:
            try:
                if session is None:
                    session = Session(self.file.connect(), self.clock, self.journal)
                # Whoever asked has given up: the statement ends, and the reader is there for others.
                session.connection.set_progress_handler(job.future.cancelled, LOOK_UP_EVERY)
                session.connection.execute("begin")
                try:
                    job.result = drive(job.work(session))
                finally:
                    session.connection.execute("rollback")
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller, whatever it is
                job.error = self.file.translated(error)
            _settle([job])
        if session is not None:
            session.connection.close()

    def _write_forever(self, connection: Any) -> None:
        session = Session(connection, self.clock, self.journal, is_trouble=self.file.is_trouble)
        while (job := self._writes.get()) is not None:
            stop = self._commit_together(session, job)
            if stop:
                break
        # The last connection to close moves everything from the log into the file: that shall be this one.
        self._watcher.close()
        for reader in self._threads[1:]:
            reader.join()
        connection.close()

    def _commit_together(self, session: Session, first: Job) -> bool:
        """One transaction for the first job and for those that have gathered; True when asked to stop."""
        done: list[Job] = []
        stop = False
        job: Job | None = first
        # Alone: whoever has gathered meanwhile waits for a sync anyway.
        if self.file.can_skip_sync and first.may_be_lost and self._writes.empty():
            self._commit_without_sync(session, first)
            _settle([first])
            return False
        try:
            self._begin(session.connection)
            until = time.monotonic() + MOST_SECONDS_PER_COMMIT
            while job is not None:
                done.append(job)
                self._run_in_savepoint(session, job)
                job = None
                if len(done) < MOST_UNITS_PER_COMMIT and time.monotonic() < until and not self._writes.empty():
                    job = self._writes.get()
                    stop = job is None
            _commit(session.connection)
        except BaseException as error:  # noqa: BLE001 - every waiting caller must hear of it
            self._roll_back(session.connection)
            if len(done) > 1:
                # Nothing of the batch is in the file. One by one, so that a bad one hurts only itself.
                for each in done:
                    each.result = each.error = None
                    each.in_doubt = self.file.is_unconfirmed(error)
                    self._commit_alone(session, each)
                    _settle([each])
                return stop
            if not done:
                # The file could not be had at all: whoever waits behind would wait as long again, one by one.
                done.append(first)
                while not stop and not self._writes.empty():
                    waiting = self._writes.get()
                    stop = waiting is None
                    done += [waiting] if waiting is not None else []
            for each in done:
                each.error = self._explained(session, error)
        _settle(done)
        return stop

    def _commit_without_sync(self, session: Session, job: Job) -> None:
        """A lease. The next commit that is synced takes it along; a power cut before that takes its holder, too."""
        session.connection.execute("pragma synchronous = normal")
        try:
            self._commit_alone(session, job)
        finally:
            session.connection.execute("pragma synchronous = full")

    def _commit_alone(self, session: Session, job: Job) -> None:
        try:
            self._begin(session.connection)
            self._run_in_savepoint(session, job)
            _commit(session.connection)
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            self._roll_back(session.connection)
            job.error = self._explained(session, error, in_doubt=job.in_doubt)

    def _explained(self, session: Session, error: BaseException, *, in_doubt: bool = False) -> BaseException:
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

    def _run_in_savepoint(self, session: Session, job: Job) -> None:
        """The job's own error stays with the job; an error that ended the whole transaction is raised."""
        connection = session.connection
        session.begin_unit()
        connection.execute("savepoint unit")
        try:
            job.result = drive(job.work(session))
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


def _commit(connection: Any) -> None:
    if faults.armed:
        faults.reach_commit(connection)
    connection.execute("commit")


def _settle(jobs: list[Job]) -> None:
    """Tell the callers, with one hop per event loop however many they are."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, theirs in by_loop.items():
        # A closed loop raises: its callers are gone.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle_all, theirs)


def _settle_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.settle()
