"""SQLite: durable by its settings, one writer for many callers, and clear about what is wrong with a file."""

import asyncio
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

import pgqrs
from pgqrs.clock import DatabaseClock
from pgqrs.db.database import Kind
from pgqrs.db.drivers.sqlite.driver import SQLiteDriver
from pgqrs.db.drivers.sqlite.file import SQLiteFile
from pgqrs.db.queries import Query


@pytest.fixture
async def db(tmp_path):
    driver = await SQLiteDriver.open(pgqrs.Config(f"sqlite:///{tmp_path / 'app.db'}"), DatabaseClock())
    await driver.execute(Query("create", "create table t (n integer primary key, x text check (x <> 'poison'))"))
    yield driver
    await driver.close()


INSERT = Query("insert", "insert into t (x) values (:x)")
COUNT = Query("count", "select count(*) from t")


async def count(db) -> int:
    return (await db.fetch(COUNT))[0][0]


@pytest.mark.row("B5.13")
@pytest.mark.parametrize(("pragma", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)])
async def test_every_connection_is_durable_and_strict(db, pragma, value):
    for kind in (Kind.UNIT, Kind.READ):
        rows = await db.perform(
            lambda unit: unit.fetch(Query(pragma, f"pragma {pragma}")), kind=kind, idempotent=True
        )
        assert rows == [(value,)]


async def test_many_units_go_into_one_commit(db):
    commits = 0
    begin = db._begin

    def counted(connection):
        nonlocal commits
        commits += 1
        begin(connection)

    db._begin = counted
    await asyncio.gather(*(db.execute(INSERT, x="a") for _ in range(300)))

    assert await count(db) == 300
    assert commits < 150


async def test_a_unit_that_fails_hurts_only_itself(db):
    results = await asyncio.gather(
        *(db.execute(INSERT, x="poison" if n == 50 else "fine") for n in range(100)), return_exceptions=True
    )

    assert [n for n, result in enumerate(results) if isinstance(result, BaseException)] == [50]
    assert await count(db) == 99


async def test_a_unit_is_all_or_nothing(db):
    async def work(unit):
        await unit.execute(INSERT, x="first")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        await db.perform(work, kind=Kind.UNIT, idempotent=False)

    assert await count(db) == 0


async def test_a_commit_that_fails_is_tried_one_by_one(db):
    """As when the disk runs full: what fits is stored, the rest hears of it."""

    class FailingOnce:
        def __init__(self, connection):
            self._connection = connection
            self.failures = 1

        def execute(self, sql, *args):
            if sql == "commit" and self.failures:
                self.failures -= 1
                raise sqlite3.OperationalError("disk I/O error")
            return self._connection.execute(sql, *args)

        def __getattr__(self, name):
            return getattr(self._connection, name)

    gate = threading.Event()

    async def wait(unit):
        if not gate.is_set():
            unit.connection = FailingOnce(unit.connection)
            gate.wait(10)
        await unit.execute(INSERT, x="first")

    first = asyncio.create_task(db.perform(wait, kind=Kind.UNIT, idempotent=False))
    await asyncio.sleep(0)
    others = [asyncio.create_task(db.execute(INSERT, x=str(n))) for n in range(10)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *others)

    assert await count(db) == 11


@pytest.mark.row("B5.9")
async def test_the_event_loop_goes_on_while_the_writer_works(db):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    gate = threading.Event()
    ticking = asyncio.create_task(tick())

    async def slow(unit):
        assert gate.wait(10)

    working = asyncio.create_task(db.perform(slow, kind=Kind.UNIT, idempotent=False))
    while ticks < 1000:
        await asyncio.sleep(0)
    gate.set()
    await working
    ticking.cancel()


async def test_awaiting_something_else_inside_a_unit_is_refused(db):
    class Something:
        def __await__(self):
            yield

    async def work(unit):
        await Something()

    with pytest.raises(RuntimeError, match="other than its own database"):
        await db.perform(work, kind=Kind.UNIT, idempotent=False)


@pytest.mark.row("B2.18")
async def test_two_event_loops_may_share_one_store(db):
    def in_another_loop():
        asyncio.run(db.execute(INSERT, x="from afar"))

    await asyncio.to_thread(in_another_loop)

    assert await count(db) == 1


async def test_a_new_file_belongs_to_its_owner_alone(db):
    assert stat.S_IMODE(Path(db.file.path).stat().st_mode) == 0o600


@pytest.mark.backends("sqlite", "turso")
async def test_what_stands_beside_the_file_belongs_to_its_owner_too(backend, tmp_path):
    """The write-ahead log holds payloads, as the file does."""
    async with pgqrs.connect(f"{backend}:///{tmp_path / 'app.db'}") as store:
        await store.create_queue("tasks")

        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("app.db*")}

    assert set(modes.values()) == {0o600}
    assert "app.db-wal" in modes


async def test_a_closed_store_says_so(db):
    await db.close()
    await db.close()

    with pytest.raises(pgqrs.ConnectionFailed, match="closed"):
        await count(db)


async def test_nothing_is_left_running_after_close(tmp_path):
    before = set(threading.enumerate())
    store = await pgqrs.connect(f"sqlite:///{tmp_path / 'x.db'}")
    await store.create_queue("tasks")
    consumer = await store.consumer("tasks")
    await consumer.dequeue(wait_seconds=0.01)
    await pgqrs.admin(store).queue_metrics("tasks")
    assert of_stores(before)

    await store.close()

    assert of_stores(before) == []


def of_stores(before):
    """Threads that were not there before; the pools for asyncio's and for users' code may have grown, and stay."""
    new = set(threading.enumerate()) - before
    return [thread.name for thread in new if thread.name.startswith("pgqrs-") and "code" not in thread.name]


@pytest.mark.row("B2.17")
async def test_a_forked_child_is_told_to_connect_again(db):
    child = os.fork()
    if child == 0:
        try:
            db._owner.check()
        except pgqrs.ConnectionFailed as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert await count(db) == 0


async def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(pgqrs.ConnectionFailed, match=r"nowhere.*does not exist"):
        await pgqrs.connect(f"sqlite:///{tmp_path / 'nowhere' / 'app.db'}")


@pytest.mark.row("B5.8")
async def test_a_link_that_leads_nowhere_is_not_followed(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "target.db")

    with pytest.raises(pgqrs.ConnectionFailed, match="link"):
        await pgqrs.connect(f"sqlite:///{tmp_path / 'link.db'}")
    assert not (tmp_path / "target.db").exists()


@pytest.mark.row("B5.8")
async def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path):
    file = tmp_path / "app.db"
    file.write_bytes(b"this is my diary, not a database" * 100)

    with pytest.raises(pgqrs.ConnectionFailed, match="not a database"):
        await pgqrs.connect(f"sqlite:///{file}")
    assert file.read_bytes().startswith(b"this is my diary")


@pytest.mark.row("B5.8")
async def test_stores_in_memory_are_apart():
    async with pgqrs.connect("sqlite://:memory:") as one, pgqrs.connect("sqlite://:memory:") as other:
        await one.create_queue("tasks")

        assert await pgqrs.admin(other).queues() == []


@pytest.mark.row("B10.8")
async def test_tenants_have_files_of_their_own(tmp_path):
    dsn = f"sqlite:///{tmp_path / 'app.db'}"
    async with pgqrs.connect(dsn) as one, pgqrs.connect(dsn, schema="tenant_a") as other:
        await one.create_queue("tasks")

        assert await pgqrs.admin(other).queues() == []
    assert (tmp_path / "app.tenant_a.db").exists()


async def test_a_closed_store_leaves_everything_in_the_file_itself(tmp_path):
    for n in range(10):
        file = tmp_path / f"{n}.db"
        async with pgqrs.connect(f"sqlite:///{file}") as store:
            await store.create_queue("tasks")
            await pgqrs.admin(store).queue_metrics("tasks")
            await (await store.consumer("tasks")).dequeue(wait_seconds=0.01)

        assert not file.with_name(f"{n}.db-wal").exists()


@pytest.mark.row("B5.8")
async def test_a_file_that_was_removed_takes_no_more_messages(tmp_path):
    file = tmp_path / "app.db"
    store = await pgqrs.connect(f"sqlite:///{file}")
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    file.unlink()

    with pytest.raises(pgqrs.ConnectionFailed, match="removed or replaced"):
        await producer.enqueue("lost")
    await store.close()


async def test_a_close_that_is_cancelled_still_ends_the_threads(tmp_path):
    before = set(threading.enumerate())
    store = await pgqrs.connect(f"sqlite:///{tmp_path / 'x.db'}")
    await store.create_queue("tasks")
    closing = asyncio.create_task(store.database.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)

    await store.close()

    assert of_stores(before) == []


class Faulty:
    """A connection on which some statements raise what nobody has thought of."""

    def __init__(self, connection, *statements):
        self._connection = connection
        self.statements = list(statements)

    def execute(self, sql, *parameters):
        if sql in self.statements:
            self.statements.remove(sql)
            raise MemoryError(f"no memory for {sql}")
        return self._connection.execute(sql, *parameters)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize(
    "statement", ["pragma synchronous = full", "rollback to unit", "release unit", "savepoint unit"]
)
async def test_whatever_happens_in_the_writer_later_calls_are_served(tmp_path, monkeypatch, statement):
    """An error that got out of the writer's thread ended it, and every later call waited for ever."""
    config = pgqrs.Config(f"sqlite:///{tmp_path / 'app.db'}")
    connect = SQLiteFile.connect
    faulty = []

    def connected(self):
        faulty.append(Faulty(connect(self)))
        return faulty[-1]

    monkeypatch.setattr(SQLiteFile, "connect", connected)
    async with asyncio.timeout(20):
        db = await SQLiteDriver.open(config, DatabaseClock())
        await db.execute(Query("create", "create table t (n integer primary key, x text check (x <> 'poison'))"))
        faulty[0].statements += [statement] * 2

        lease = db.perform(lambda unit: unit.execute(INSERT, x="a"), kind=Kind.LEASE, idempotent=True)
        ends = await asyncio.gather(lease, return_exceptions=True)
        others = [db.execute(INSERT, x=x) for x in ("b", "poison", "c")]
        ends += await asyncio.gather(*others, return_exceptions=True)
        written = sum(1 for end in ends if end == 1)
        doubtful = sum(1 for end in ends if getattr(end, "ambiguous", False))

        assert await db.execute(INSERT, x="later") == 1
        assert written + 1 <= await count(db) <= written + 1 + doubtful
        rows = await db.perform(
            lambda unit: unit.fetch(Query("synchronous", "pragma synchronous")), kind=Kind.UNIT, idempotent=True
        )
        assert rows == [(2,)]
        await db.close()


async def test_a_bug_in_the_writer_is_told_to_those_who_wait(db, monkeypatch):
    def broken(_session, _job):
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(db, "_commit_together", broken)
        with pytest.raises(pgqrs.ConnectionFailed, match="a bug") as caught:
            await asyncio.wait_for(db.execute(INSERT, x="a"), 10)
    assert caught.value.ambiguous

    assert await asyncio.wait_for(db.execute(INSERT, x="b"), 10) == 1


async def test_a_reader_whose_transaction_does_not_end_is_replaced(db, monkeypatch):
    async def leave_it_open(unit):
        # As after an error that the reader did not expect: the next `begin` would be refused for ever.
        unit.connection = Faulty(unit.connection, "rollback")
        return await unit.fetch(COUNT)

    for _ in range(4):
        with pytest.raises(MemoryError):
            await db.perform(leave_it_open, kind=Kind.READ, idempotent=True)
    for _ in range(4):
        assert await db.perform(lambda unit: unit.fetch(COUNT), kind=Kind.READ, idempotent=True) == [(0,)]


async def test_without_threads_for_readers_the_writer_reads(db, monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)

    read = db.perform(lambda unit: unit.fetch(COUNT), kind=Kind.READ, idempotent=True)
    assert await asyncio.wait_for(read, 10) == [(0,)]
