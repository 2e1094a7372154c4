"""Heartbeats keep a lease, whatever blocks the event loop or the pool; and tell of a worker that hangs."""

import asyncio
import ctypes
import dataclasses
import logging
import threading
import time

import asyncpg
import pytest

import pgqrs
from pgqrs import faults
from pgqrs.engine.heartbeat import Heartbeat
from pgqrs.engine.loop_watchdog import LoopWatchdog


@pytest.fixture
def config(config):
    return config.with_changes(lease_seconds=1)


@pytest.fixture
async def flow(live_store):
    await live_store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.fixture
async def worked(live_store, flow):
    """Works with a handler until the one run has ended; gives the run."""

    async def work(handler, params=None, **options):
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
        polling = asyncio.create_task(worker.poll_forever())
        run_id = await flow.trigger(params, **options).execute(live_store)
        run = await flow.get_run(run_id, live_store)
        try:
            await run.result(30)
        finally:
            worker.stop()
            await polling
        return run

    return work


class Told(logging.Handler):
    """Sets an event when a line that has the words is logged."""

    def __init__(self, words):
        super().__init__()
        self.words = words
        self.lines = []
        self.event = threading.Event()

    def emit(self, record):
        if self.words in record.getMessage():
            self.lines.append(record.getMessage())
            self.event.set()


@pytest.fixture
def told():
    handlers = []

    def listen(words):
        handlers.append(Told(words))
        logging.getLogger("pgqrs").addHandler(handlers[-1])
        return handlers[-1]

    yield listen
    for each in handlers:
        logging.getLogger("pgqrs").removeHandler(each)


@pytest.mark.row("B2.1")
@pytest.mark.parametrize("where", ["step", "handler"])
async def test_who_blocks_the_event_loop_is_named_once(worked, told, where):
    warned = told("has blocked the event loop")

    async def block():
        # On the event loop, as a forgotten `time.sleep`; it ends when the warning has come, and was not repeated.
        assert warned.event.wait(20)
        beats = Beats(2)
        with beats:
            assert beats.event.wait(20)

    async def handler(ctx):
        await (ctx.step("reads", block) if where == "step" else block())

    run = await worked(handler)

    who = f"step 'reads' of run {run.run_id}" if where == "step" else f"the handler of run {run.run_id}"
    assert len(warned.lines) == 1
    assert warned.lines[0].startswith(who)
    assert run.attempt == 1


async def test_a_worker_that_drains_names_who_blocks_the_event_loop_too(config, flow, told):
    """As `pgqrs worker run --drain`; its first beat is due after 200 seconds."""
    warned = told("has blocked the event loop")
    waited = []

    async def handler(ctx):
        waited.append(warned.event.wait(20))

    async with pgqrs.connect_with(config.with_changes(lease_seconds=600)) as store:
        run_id = await flow.trigger().execute(store)
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()

    assert waited == [True]
    assert warned.lines[0].startswith(f"the handler of run {run_id}")


@dataclasses.dataclass
class Slow:
    """An argument that takes so long to be made that the event loop is looked at twice meanwhile."""

    number: int

    def __post_init__(self):
        watch = LoopWatchdog()
        looking = threading.Thread(target=lambda: (watch.look(), watch.look()))
        looking.start()
        looking.join()


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_only_an_async_handler_is_named_for_a_blocked_event_loop(worked, told, kind):
    """The finding: a plain handler was advised to be a plain function. It runs in a thread and blocks no loop."""
    warned = told("has blocked the event loop")

    async def handler(ctx, slow: Slow):
        return slow.number

    def plain_handler(ctx, slow: Slow):
        return slow.number

    run = await worked(handler if kind == "async" else plain_handler, {"number": 7})

    assert run.status == "SUCCESS"
    assert [line.startswith(f"the handler of run {run.run_id}") for line in warned.lines] == [True] * (
        kind == "async"
    )


class Beats:
    """Counts renewals of leases; sets its event after so many."""

    def __init__(self, wanted):
        self.event = threading.Event()
        self._left = wanted
        self._armed = faults.injected(self._count)

    def _count(self, point):
        if point == ("after", "messages.renew"):
            self._left -= 1
            if self._left <= 0:
                self.event.set()

    def __enter__(self):
        self._armed.__enter__()
        return self

    def __exit__(self, *_):
        self._armed.__exit__(None, None, None)


@pytest.mark.row("B2.2")
@pytest.mark.backends("sqlite")
async def test_a_loop_of_pure_python_does_not_keep_the_lease_from_being_renewed(worked):
    async def spin():
        # Leases are renewed every third of a second here: after twelve times, the first one would have run out.
        deadline = time.monotonic() + 30
        with Beats(12) as beats:
            while not beats.event.is_set() and time.monotonic() < deadline:
                sum(range(1000))

    # On a machine that is busy with other things, a second may pass without a turn for the heartbeat.
    @pgqrs.workflow(name="flow", lease_seconds=3)
    async def handler(ctx: pgqrs.Context) -> None:
        await ctx.step("spin", spin)

    run = await worked(handler)

    assert (run.status, run.attempt) == ("SUCCESS", 1)


@pytest.mark.row("B2.3")
@pytest.mark.backends("sqlite")
async def test_a_call_that_keeps_the_interpreter_to_itself_for_too_long_loses_its_lease(worked):
    begun = []

    async def hold():
        # PyDLL does not let go of the interpreter's lock: no thread can renew anything.
        ctypes.PyDLL(None).usleep(1_300_000)

    async def handler(ctx):
        if ctx.attempt == 1:
            await ctx.step("hold", hold)
            begun.append("what comes after it")
        return ctx.attempt

    run = await worked(handler)

    assert (run.status, run.output()) == ("SUCCESS", 2)
    assert begun == []


@pytest.mark.row("B2.3")
async def test_a_lease_that_had_to_be_given_up_is_not_renewed_afterwards(live_store):
    """The process stood still: whether its handler or its heartbeat looks first must not decide what becomes of a run."""
    lost = threading.Event()
    heartbeat = Heartbeat(live_store.database, live_store.config, worker_id=1, lease_seconds=6)
    await live_store.create_queue("tasks")
    await (await live_store.producer("tasks")).enqueue(1)
    [message] = await (await live_store.consumer("tasks")).dequeue(lease_seconds=6)
    with Beats(1) as renewed:
        since = time.monotonic() - 6
        lease = message._lease.lease_token
        held = heartbeat.hold(message.id, lease, lost.set, run_id=1, lease_seconds=6, since=since)
        came = await asyncio.to_thread(lost.wait, 4)
        await asyncio.to_thread(heartbeat.close)

    assert came
    assert not held.is_valid()
    assert not renewed.event.is_set()


@pytest.mark.backends("postgres")
async def test_a_row_that_another_transaction_has_locked_is_neither_waited_for_nor_lost(live_store):
    """Of the leases of a process, renewed in one statement."""
    db = live_store.database
    heartbeat = Heartbeat(db, live_store.config, worker_id=1, lease_seconds=6)
    await live_store.create_queue("tasks")
    await (await live_store.producer("tasks")).enqueue_many([1, 2])
    messages = await (await live_store.consumer("tasks")).dequeue(batch_size=2, lease_seconds=6)
    connection = await asyncpg.connect(live_store.config.dsn, statement_cache_size=0)
    async with connection.transaction():
        await connection.execute(
            f'select 1 from "{live_store.config.schema}".pgqrs_messages where message_id = {messages[0].id} for update'
        )
        with Beats(2) as renewed:
            held = [
                heartbeat.hold(each.id, each._lease.lease_token, run_id=number, lease_seconds=6)
                for number, each in enumerate(messages)
            ]
            due = [each.due for each in held]
            assert await asyncio.to_thread(renewed.event.wait, 30)
        valid = [each.is_valid() for each in held]
    await connection.close()
    await asyncio.to_thread(heartbeat.close)

    assert valid == [True, True]
    assert held[0].due == due[0]
    assert held[1].due > due[1]


@pytest.mark.row("B2.5")
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "for ever"])
async def test_a_heartbeat_that_fails_is_tried_again_and_then_taken_for_lost(live_store, times):
    """Whatever it raises: a thread that ends would never renew anything again."""

    def fail():
        raise RuntimeError("nobody has thought of this")

    lost = threading.Event()
    # A lease that must survive one failure outlasts any pause of a loaded machine; one that must be lost is short.
    seconds = 6 if times == 1 else 1
    heartbeat = Heartbeat(live_store.database, live_store.config, worker_id=1, lease_seconds=seconds)
    await live_store.create_queue("tasks")
    await (await live_store.producer("tasks")).enqueue(1)
    [message] = await (await live_store.consumer("tasks")).dequeue(lease_seconds=seconds)
    with faults.injected(faults.at("before", "messages.renew", fail, times=times)), Beats(1) as beats:
        held = heartbeat.hold(message.id, message._lease.lease_token, lost.set, run_id=1, lease_seconds=seconds)
        came = await asyncio.to_thread((beats.event if times == 1 else lost).wait, 20)
        still = held.is_valid()
        await asyncio.to_thread(heartbeat.close)

    assert came
    assert still == (times == 1)
    assert lost.is_set() == (times > 1)


@pytest.mark.row("B2.6")
@pytest.mark.backends("postgres")
async def test_leases_are_renewed_while_every_connection_of_the_pool_is_taken(live_store, flow):
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(ctx):
        begun.set()
        await may_end.wait()

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    run_id = await flow.trigger().execute(live_store)
    await begun.wait()
    pool = live_store.database._pool
    taken = [await pool.take(20) for _ in range(live_store.config.pool_size)]
    with Beats(4) as beats:
        assert await asyncio.to_thread(beats.event.wait, 20)
    for each in taken:
        pool.give(each)
    may_end.set()
    await (await flow.get_run(run_id, live_store)).result(20)
    worker.stop()
    await polling

    assert (await flow.get_run(run_id, live_store)).attempt == 1


@pytest.mark.row("B2.7")
async def test_a_worker_whose_claims_hang_can_be_told_from_one_that_is_well(live_store, flow):
    """Its heartbeats go on all the same: they prove nothing."""
    hanging, begun, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang():
        begun.set()
        await hanging.wait()

    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx: None).create(live_store)
    with faults.injected(faults.at("before", "claims.claim", hang)):
        polling = asyncio.create_task(worker.poll_forever())
        await begun.wait()
        before = worker.seconds_since_claim
        while worker.seconds_since_claim < before + 0.05:
            await asyncio.sleep(0.01)
        wedged = worker.seconds_since_claim
        with faults.injected(faults.at("after", "messages.next_due", answered.set)):
            hanging.set()
            await asyncio.wait_for(answered.wait(), 20)
        well = worker.seconds_since_claim
    worker.stop()
    await polling

    assert wedged >= 0.05
    assert well < wedged


@pytest.mark.row("B2.7")
async def test_a_worker_with_its_hands_full_is_well(live_store, flow):
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(ctx):
        begun.set()
        await may_end.wait()

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).concurrency(1).create(live_store)
    await flow.trigger().execute(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    await begun.wait()
    seconds = worker.seconds_since_claim
    may_end.set()
    worker.stop()
    await polling

    assert seconds == 0
