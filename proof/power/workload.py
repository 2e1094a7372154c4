"""Work through the public API on one SQLite file, which says after each call what it has been promised.

What was acknowledged goes into a second file as `+ fact`, with one write each; a call that raised and said that
nothing of it was written as `- fact`. `finish` is the program that comes after the crash: it does the rest of the
work. Facts are named by keys that both programs know:

    installed     run KEY     step KEY NAME     moved KEY     signal KEY     ended KEY     cancelled KEY
                  queued PAYLOAD     archived PAYLOAD
"""

import json
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pgqrs
from pgqrs import faults
from pgqrs.db.drivers.sqlite.file import SQLiteFile

DATABASE, SAID, SAW = "app.db", "said", "saw"
WORKFLOW, QUEUE = "order", "tasks"
KEYS, DOOMED = ("a", "b", "c"), "d"
PAYLOADS = tuple(f"p{n}" for n in range(8))
# Enough to be in a page of its own now and then.
PADDING = "x" * 700
# Time stands still: what is written is the same in every recording, but for what threads do at once.
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
# Later than every lease and every backoff of the first program.
LATER = BEGIN + timedelta(hours=1)
# 1,000 pages in the product. So small a log is copied into the file and begun again several times in this work.
PAGES_PER_CHECKPOINT = 60

Hold = Callable[[str], None]


# Where a program may be held, in this order: before the file is there, before its tables are, before work is done on
# it, before it is opened again.
PLACES = ("create", "install", "work", "again")


class Ledger:
    """What the program was promised, outside of the database under test; and the places that it has passed."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / SAID, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, fact: str) -> None:
        os.write(self._file, f"+ {fact}\n".encode())

    def pass_by(self, place: str) -> None:
        os.write(self._file, f"= {place}\n".encode())

    async def told(self, fact: str, call: Awaitable[Any]) -> Any:
        """The call's own answer; its fact is acknowledged when it returns, and denied when it raises that."""
        try:
            answer = await call
        except pgqrs.PgqrsError as error:
            if not getattr(error, "ambiguous", False):
                os.write(self._file, f"- {fact}\n".encode())
            raise
        self.say(fact)
        return answer


async def first_program(folder: Path, hold: Hold) -> None:
    """`hold` is called at each of the places, "install" in the writer's thread."""
    ledger = Ledger(folder)
    clock = pgqrs.ManualClock(BEGIN)
    dsn = f"sqlite:///{folder / DATABASE}"
    passed: list[str] = []

    def at(place: str) -> None:
        if place not in passed:
            passed.append(place)
            hold(place)
            ledger.pass_by(place)

    at("create")
    with faults.injected(lambda _: at("install")):
        store = await pgqrs.connect(dsn, clock=clock)
    await store.create_workflow(WORKFLOW)
    await ledger.told("installed", store.create_queue(QUEUE))
    at("work")
    await _work(store, ledger)
    await store.close()
    at("again")
    store = await pgqrs.connect(dsn, clock=clock)
    await _queue_work(store, ledger, PAYLOADS[6:])
    await store.close()


async def _work(store: pgqrs.Store, ledger: Ledger) -> None:
    flow = pgqrs.workflow(WORKFLOW)
    runs = {key: await ledger.told(f"run {key}", _trigger(store, key)) for key in (*KEYS, DOOMED)}
    await ledger.told(f"cancelled {DOOMED}", flow.cancel(runs[DOOMED], store))
    # One run in one go, the others beside each other, so that some commits hold several.
    await ledger.told(f"signal {KEYS[0]}", flow.signal(runs[KEYS[0]], store, "paid", {"key": KEYS[0]}))
    worker = await _worker(store, ledger)
    await worker.run_until_idle()
    for key in KEYS[1:]:
        await ledger.told(f"signal {key}", flow.signal(runs[key], store, "paid", {"key": key}))
    await worker.run_until_idle()
    for key in KEYS:
        if (await flow.get_run(runs[key], store)).status == "SUCCESS":
            ledger.say(f"ended {key}")
    await worker.close()
    await _queue_work(store, ledger, PAYLOADS[:6])


async def _queue_work(store: pgqrs.Store, ledger: Ledger, payloads: tuple[str, ...]) -> None:
    producer, consumer = await store.producer(QUEUE), await store.consumer(QUEUE)
    for payload in payloads:
        await ledger.told(f"queued {payload}", producer.enqueue([payload, PADDING]))
    for message in await consumer.dequeue(len(payloads) - 1):
        await ledger.told(f"archived {message.payload[0]}", message.archive())
    await consumer.close()


async def _worker(store: pgqrs.Store, ledger: Ledger) -> pgqrs.Worker:
    async def handler(ctx, key: str) -> list[Any]:
        def pick() -> str:
            return f"{key} {PADDING}"

        async def move(transaction) -> int:
            await transaction.execute("create table if not exists moves (key text)")
            await transaction.execute("insert into moves values (?)", key)
            [(moved,)] = await transaction.fetch("select count(*) from moves where key = ?", key)
            return int(moved)

        await ledger.told(f"step {key} pick", ctx.step("pick", pick))
        moved = await ledger.told(f"moved {key}", ctx.transaction("move", move))
        paid = await ctx.wait_for("paid")
        shipped = await ledger.told(f"step {key} ship", ctx.step("ship", lambda: f"{key} is out"))
        return [moved, paid["key"], shipped]

    return await pgqrs.consumer("w", 0, WORKFLOW).handler(handler).create(store)


def _trigger(store: pgqrs.Store, key: str) -> Awaitable[int]:
    return pgqrs.workflow(WORKFLOW).trigger(key, idempotency_key=key).execute(store)


async def finish(folder: Path) -> None:
    """A fresh program, later: whatever the first one left, all of the work gets done. AssertionError where not."""
    ledger = Ledger(folder)
    clock = pgqrs.ManualClock(LATER)
    flow = pgqrs.workflow(WORKFLOW)
    async with pgqrs.connect(f"sqlite:///{folder / DATABASE}", clock=clock) as store:
        await store.create_workflow(WORKFLOW)
        await store.create_queue(QUEUE)
        worker = await _worker(store, ledger)
        runs = {key: await _trigger(store, key) for key in (*KEYS, DOOMED)}
        if (await flow.get_run(runs[DOOMED], store)).status != "CANCELLED":
            await flow.cancel(runs[DOOMED], store)
        await worker.run_until_idle()
        for key in KEYS:
            if (await flow.get_run(runs[key], store)).status == "PAUSED":
                await flow.signal(runs[key], store, "paid", {"key": key})
        await worker.run_until_idle()
        ended = {key: await flow.get_run(runs[key], store) for key in KEYS}
        await worker.close()
        await _drain(store)
    for key, run in ended.items():
        assert run.status == "SUCCESS", f"run {key} is {run.status} {run.waiting_for or run.last_error}"
        assert run.output() == [1, key, f"{key} is out"], f"run {key} gave {run.output()}"


async def _drain(store: pgqrs.Store) -> None:
    """What is missing is queued, what is queued is archived."""
    # Read beside the store: no verb lists payloads of what is archived.
    with sqlite3.connect(store.config.path) as reader:
        there = {json.loads(text)[0] for (text,) in reader.execute(_PAYLOADS)}
    reader.close()
    producer, consumer = await store.producer(QUEUE), await store.consumer(QUEUE)
    await producer.enqueue_many([[payload, PADDING] for payload in PAYLOADS if payload not in there])
    while messages := await consumer.dequeue(100):
        await consumer.archive_many(messages)
    await consumer.close()


_PAYLOADS = """
    select payload from pgqrs_messages where run_id is null
    union all select payload from pgqrs_archived_messages"""


@contextmanager
def pragmas(synchronous: str = "full") -> Iterator[None]:
    """The driver with a small log; and for controls, mutated: it syncs less than it says."""
    configure = SQLiteFile.configure

    def configured(self: SQLiteFile, connection: Any) -> None:
        configure(self, connection)
        self._pragma(connection, f"synchronous = {synchronous}")
        self._pragma(connection, f"wal_autocheckpoint = {PAGES_PER_CHECKPOINT}")

    SQLiteFile.configure = configured
    # After a lease the driver would sync fully again.
    SQLiteFile.can_skip_sync = synchronous == "full"
    try:
        yield
    finally:
        SQLiteFile.configure, SQLiteFile.can_skip_sync = configure, True
