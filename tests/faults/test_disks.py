"""Disks that run full, refuse, or lose files under a running program.

Tests that need a small or a read-only file system run this file as a program, in a mount namespace of its own.
"""

import asyncio
import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.clock import DatabaseClock
from pgqrs.db.database import Kind
from pgqrs.db.drivers.sqlite.driver import SQLiteDriver
from pgqrs.db.queries import Query
from rig import postgres

INSERT = Query("insert", "insert into t (x) values (:x)")


# -- the disk does not confirm ---------------------------------------------------------------------


class Refusing:
    """A connection whose commits fail, each as the next of `codes` says; the transaction stays to be rolled back."""

    def __init__(self, connection, codes):
        self._connection = connection
        self._codes = codes

    def execute(self, sql, *args):
        if sql == "commit" and self._codes:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._codes.pop(0)
            raise error
        return self._connection.execute(sql, *args)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.fixture
async def db(tmp_path):
    driver = await SQLiteDriver.open(pgqrs.Config(f"sqlite:///{tmp_path / 'app.db'}"), DatabaseClock())
    await driver.execute(Query("create", "create table t (n integer primary key, x text)"))
    yield driver
    await driver.close()


async def errors_of(db, codes, *, together):
    """What the callers see whose units share a commit that fails so."""
    gate = threading.Event()

    async def first(unit):
        if not isinstance(unit.connection, Refusing):
            unit.connection = Refusing(unit.connection, codes)
        assert gate.wait(10)
        await unit.execute(INSERT, x="first")

    units = [asyncio.create_task(db.perform(first, kind=Kind.UNIT, idempotent=False))]
    await asyncio.sleep(0)
    units += [asyncio.create_task(db.execute(INSERT, x=str(n))) for n in range(together - 1)]
    await asyncio.sleep(0)
    gate.set()
    return await asyncio.gather(*units, return_exceptions=True)


@pytest.mark.row("B5.2")
async def test_a_commit_that_the_disk_did_not_confirm_is_ambiguous(db):
    [error] = await errors_of(db, [sqlite3.SQLITE_IOERR_FSYNC], together=1)

    assert isinstance(error, pgqrs.ConnectionFailed)
    assert error.ambiguous
    assert "may be written or not" in str(error)
    assert db.file.path in str(error)


@pytest.mark.row("B5.2")
async def test_a_commit_that_was_not_written_says_so(db):
    [error] = await errors_of(db, [sqlite3.SQLITE_IOERR_WRITE], together=1)

    assert isinstance(error, pgqrs.ConnectionFailed)
    assert not error.ambiguous
    assert "nothing of this call was written" in str(error)


@pytest.mark.row("B5.2")
async def test_the_doubt_of_a_shared_commit_stays_with_each_of_its_units(db):
    codes = [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_WRITE]
    one, other, after = await errors_of(db, codes, together=3)

    assert (one.ambiguous, other.ambiguous, after) == (True, True, 1)


# -- files that go, or are not all of it -----------------------------------------------------------


@pytest.mark.row("B5.8")
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("link", [False, True])
async def test_a_store_whose_log_was_removed_takes_no_more_messages(tmp_path, suffix, link):
    file = tmp_path / "app.db"
    if link:
        file.touch()
        (tmp_path / "link.db").symlink_to(file)
    store = await pgqrs.connect(f"sqlite:///{tmp_path / 'link.db' if link else file}")
    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    file.with_name(f"app.db{suffix}").unlink()

    with pytest.raises(pgqrs.ConnectionFailed, match="removed or replaced"):
        await producer.enqueue("lost")
    await store.close()


@pytest.mark.row("B5.8")
async def test_a_copy_without_its_log_is_older_but_whole(tmp_path):
    file, copy = tmp_path / "app.db", tmp_path / "copy.db"
    async with pgqrs.connect(f"sqlite:///{file}") as store:
        await store.create_queue("tasks")
        await (await store.producer("tasks")).enqueue("in the file")
    async with pgqrs.connect(f"sqlite:///{file}") as store:
        await (await store.producer("tasks")).enqueue("in the log")
        shutil.copy(file, copy)

    async with pgqrs.connect(f"sqlite:///{copy}") as store:
        messages = await (await store.consumer("tasks")).dequeue(10)
        assert [message.payload for message in messages] == ["in the file"]


@pytest.mark.row("B5.8")
async def test_a_link_and_its_file_are_one_database(tmp_path):
    async with pgqrs.connect(f"sqlite:///{tmp_path / 'app.db'}") as store:
        await store.create_queue("tasks")
        (tmp_path / "link.db").symlink_to(tmp_path / "app.db")
        async with pgqrs.connect(f"sqlite:///{tmp_path / 'link.db'}") as other:
            await (await other.producer("tasks")).enqueue("through the link")

        [message] = await (await store.consumer("tasks")).dequeue(10)
        assert message.payload == "through the link"


@pytest.mark.row("B5.8")
async def test_a_store_in_memory_has_one_connection_for_all_it_does():
    async with pgqrs.connect("sqlite://:memory:") as store:
        await store.create_queue("tasks")
        producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
        await asyncio.gather(*(producer.enqueue(n) for n in range(20)))
        metrics, messages = await asyncio.gather(pgqrs.admin(store).queue_metrics("tasks"), consumer.dequeue(20))

        assert len(messages) == 20
        assert metrics.ready + metrics.leased == 20


@pytest.mark.row("B5.8")
def test_a_read_only_folder_is_refused_by_name(tmp_path):
    told = in_namespace("read_only", tmp_path)

    for error in told:
        assert error["type"] == "ConnectionFailed"
        assert f"{tmp_path}/app.db" in error["text"] or f"{tmp_path}/new.db" in error["text"]


# -- full -----------------------------------------------------------------------------------


@pytest.mark.row("B5.7")
def test_a_full_disk_is_a_typed_error_and_goes_on_when_there_is_room(tmp_path):
    told = in_namespace("sqlite_full", tmp_path)

    assert told["errors"] == ["ConnectionFailed"] * 3
    assert told["named"]
    assert not told["ambiguous"]
    assert told["acknowledged"] > 10
    assert told["found"] == told["acknowledged"] + 1
    assert told["integrity"] == "ok"


@pytest.mark.row("B5.7")
def test_a_worker_outlives_a_full_disk(tmp_path):
    told = in_namespace("worker_full", tmp_path)

    assert told == {"status": "SUCCESS", "output": ["one", "two"], "bodies_of_one": 1, "alive_while_full": True}


@pytest.mark.row("B4.18")
def test_a_full_postgres_is_a_typed_error_and_goes_on_when_there_is_room(tmp_path):
    if postgres.find_binaries() is None:
        missing("PostgreSQL")
    told = in_namespace("postgres_full", tmp_path)

    assert told["error"] == "ConnectionFailed"
    assert told["acknowledged"] > 10
    assert told["found"] >= told["acknowledged"] + 1
    assert told["found"] <= told["acknowledged"] + 1 + told["ambiguous"]


# -- the programs ----------------------------------------------------------------------------------------

# PostgreSQL would store one letter, repeated, in next to nothing.
BIG = random.Random(7).randbytes(10_000).hex()


def missing(what):
    # As a missing backend: on a developer's machine the rest can still be tested, CI must not be green without.
    assert not os.environ.get("CI"), f"{what} is needed"
    pytest.skip(f"{what} is needed")


def in_namespace(verb, folder):
    """What the program tells, as JSON; it may mount what it likes, and nobody else sees it."""
    if shutil.which("unshare") is None:
        missing("unshare (util-linux)")
    # A user namespace lets anybody mount a tmpfs; root can do without, where those are not allowed.
    for options in (["--mount"], ["--mount", "--user", "--map-root-user"]):
        if subprocess.run(["unshare", *options, "mount", "-t", "tmpfs", "x", folder], check=False).returncode == 0:
            break
    else:
        missing("the right to mount a tmpfs")
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    command = ["unshare", *options, sys.executable, __file__, verb, folder]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def mount(folder, size, *options):
    given = ",".join((f"size={size}", *options))
    subprocess.run(["mount", "-t", "tmpfs", "-o", given, "tmpfs", str(folder)], check=True)


async def fill(producer):
    """Messages until one does not fit: how many did, and the error."""
    for number in range(1_000_000):
        try:
            await producer.enqueue([number, BIG])
        except pgqrs.PgqrsError as error:
            return number, error
    raise AssertionError("it never was full")


def weigh_down(folder, *, leaving=0):
    file = os.open(folder / "ballast", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(file, bytes(65536)):
            pass
    os.ftruncate(file, os.fstat(file).st_size - leaving)
    os.close(file)


async def read_only(folder):
    file = folder / "app.db"
    mount(folder, "3m")
    async with pgqrs.connect(f"sqlite:///{file}") as store:
        await store.create_queue("tasks")
    mount(folder, "3m", "remount", "ro")
    told = []
    for each in (file, folder / "new.db"):
        try:
            await pgqrs.connect(f"sqlite:///{each}")
        except Exception as error:  # noqa: BLE001 - told, and judged by the test
            told.append({"type": type(error).__name__, "text": str(error)})
    return told


async def sqlite_full(folder):
    file = folder / "app.db"
    mount(folder, "3m")
    async with pgqrs.connect(f"sqlite:///{file}") as store:
        await store.create_queue("tasks")
        producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
        number, first = await fill(producer)
        errors = [first]
        # Deleting needs room as well, in the log.
        for call in (pgqrs.admin(store).purge("tasks"), producer.enqueue(BIG)):
            try:
                await call
            except pgqrs.PgqrsError as error:
                errors.append(error)
        mount(folder, "12m", "remount")
        await producer.enqueue("there is room again")
        found = len(await consumer.dequeue(10_000))
    connection = sqlite3.connect(file)
    [(integrity,)] = connection.execute("pragma integrity_check")
    connection.close()
    return {
        "errors": [type(error).__name__ for error in errors],
        "named": all(str(file) in str(error) for error in errors),
        "ambiguous": any(error.ambiguous for error in errors),
        "acknowledged": number,
        "found": found,
        "integrity": integrity,
    }


async def worker_full(folder):
    """The disk runs full in the middle of a run: its worker goes on trying, and the run ends when there is room."""
    mount(folder, "3m")
    bodies = []
    full, room = asyncio.Event(), asyncio.Event()

    def one():
        bodies.append("one")
        return "one"

    async def two():
        if not room.is_set():
            weigh_down(folder)
            full.set()
        return "two"

    async def handler(ctx):
        return [await ctx.step("one", one), await ctx.step("two", two)]

    config = pgqrs.Config(f"sqlite:///{folder / 'app.db'}", lease_seconds=2, poll_interval_seconds=0.1)
    async with await pgqrs.connect_with(config) as store:
        await store.create_workflow("flow")
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
        run_id = await pgqrs.workflow("flow").trigger(None, max_attempts=20).execute(store)
        polling = asyncio.create_task(worker.poll_forever())
        await full.wait()
        # Some turns of the worker on a disk that takes nothing.
        turns, loop, turned = itertools.count(1), asyncio.get_running_loop(), asyncio.Event()

        def count(point):
            # Heartbeats come from a thread of their own.
            if point.phase == "before" and next(turns) == 5:
                loop.call_soon_threadsafe(turned.set)

        with faults.injected(count):
            await turned.wait()
        alive = not polling.done()
        room.set()
        (folder / "ballast").unlink()
        run = await pgqrs.workflow("flow").get_run(run_id, store)
        output = await run.result(timeout=60)
        await run.refresh()
        worker.stop()
        await polling
    return {
        "status": run.status,
        "output": output,
        "bodies_of_one": len(bodies),
        "alive_while_full": alive,
    }


async def postgres_full(folder):
    mount(folder, "160m", "mode=0777")
    tempfile.tempdir = str(folder)
    with postgres.start(settings={"fsync": "on", "max_wal_size": "32MB", "min_wal_size": "32MB"}) as server:
        async with pgqrs.connect(server.dsn, install=True) as store:
            await store.create_queue("tasks")
            producer = await store.producer("tasks")
            weigh_down(folder, leaving=4 * 2**20)
            number, error = await fill(producer)
            mount(folder, "400m", "remount")
            # A server that could not write its log restarts by itself.
            async with asyncio.timeout(60):
                while True:
                    try:
                        await producer.enqueue("there is room again")
                        break
                    except pgqrs.ConnectionFailed:
                        await asyncio.sleep(0.1)
            metrics = await pgqrs.admin(store).queue_metrics("tasks")
    return {
        "error": type(error).__name__,
        "text": str(error),
        "ambiguous": int(error.ambiguous),
        "acknowledged": number,
        "found": metrics.ready,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))))
