"""B2: heartbeats, a blocked event loop, cancelled tasks, forks and threads."""

import asyncio
import ctypes
import dataclasses
import itertools
import logging
import threading
import time
import types

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.runs import claims, triggers
from pgqrs.db.runs.records import StepRecord
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import messages, workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.engine.heartbeat import Heartbeat
from pgqrs.engine.loop_watchdog import LoopWatchdog
from pgqrs.types import StepStatus
from rig import forks


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
        if point == ("after", "messages.extend"):
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
        # A lease is renewed every third of it: after four times, the first one would have run out.
        deadline = time.monotonic() + 30
        with Beats(4) as beats:
            while not beats.event.is_set() and time.monotonic() < deadline:
                sum(range(1000))

    async def handler(ctx):
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
    with faults.injected(faults.at("before", "messages.extend", fail, times=times)), Beats(1) as beats:
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


# -- cancelled at every await ----------------------------------------------------------------------------


@types.coroutine
def cancelled_at(work, suspension):
    """Awaits the work, and cancels it where it waits for the so-manieth time; True when it never came so far."""
    step = work.send
    given = None
    for count in itertools.count():
        try:
            future = step(given)
        except StopIteration:
            return count <= suspension
        if count == suspension:
            # As a task does it: what is waited for is cancelled, and whoever waits hears of it a turn of the loop later.
            future.cancel()
            yield
            step, given = work.throw, asyncio.CancelledError()
            continue
        yield future
        step, given = work.send, None
    return None


class Calls:
    """The calls of the engine, on a run that is held."""

    def __init__(self, store):
        self.db = store.database

    async def begin(self):
        self.workflow = await workflows.create(self.db, "flow")
        queue_id = self.workflow.queue_id
        self.worker_id = await workers.register(self.db, queue_id=queue_id, name="w", port=0, info={"pid": 1})
        self.sources = [Source(queue_id, 60)]
        await self.trigger()
        [self.claimed] = await claims.claim(self.db, self.sources, worker_id=self.worker_id, batch=1)
        self.count = 0

    async def trigger(self):
        await triggers.trigger(self.db, NewRuns(self.workflow.workflow_id, self.workflow.queue_id, ["null"]))

    async def claim(self):
        await claims.claim(self.db, self.sources, worker_id=self.worker_id, batch=1)

    async def extend(self):
        await messages.extend(self.db, [self.claimed.fence[1:]], seconds=[60.0])

    async def transact(self):
        self.count += 1

        async def work(transaction):
            await transaction.execute("select 1")
            return "1", ()

        step = StepRecord(f"step {self.count}", self.count, StepStatus.PENDING)
        assert await claims.transact(self.db, self.claimed.fence, step, work) == "1"

    async def connect(self):
        for connection, _ in list(self.db._pool._idle):
            connection.terminate()
        await self.look()

    async def look(self):
        await messages.next_due(self.db, [self.workflow.queue_id])


@pytest.mark.row("B2.8")
@pytest.mark.parametrize("verb", ["trigger", "claim", "extend", "transact", "look"])
async def test_a_call_that_is_cancelled_at_any_await_leaves_nothing_open(store, verb):
    await cancel_at_every_await(store, verb)


@pytest.mark.row("B2.8")
@pytest.mark.backends("postgres")
async def test_a_call_that_is_cancelled_while_it_connects_leaves_nothing_open(store):
    await cancel_at_every_await(store, "connect")


async def cancel_at_every_await(store, verb):
    on_postgres = store.config.backend == "postgres"
    calls = Calls(store)
    await calls.begin()
    reached = 0
    for suspension in itertools.count():
        try:
            if await asyncio.wait_for(cancelled_at(getattr(calls, verb)(), suspension), 20):
                break
        except asyncio.CancelledError:
            reached += 1
        if on_postgres:
            await nothing_is_open(store)
    await getattr(calls, verb)()

    assert reached >= (5 if on_postgres and verb in ("transact", "connect") else 1)


async def nothing_is_open(store):
    """All connections are back in the pool, and none of them is in a transaction."""
    pool = store.database._pool
    assert pool._count == len(pool._idle) == len(pool._all) <= store.config.pool_size
    for connection, _ in pool._idle:
        if not connection.is_closed():
            assert not connection.is_in_transaction()
            # Nor has the server begun one that the client does not know of.
            assert await connection.fetchval("select txid_current_if_assigned()") is None


# -- races ----------------------------------------------------------------------------------------------


@pytest.mark.row("B2.12")
async def test_a_race_of_steps_has_the_same_winner_in_a_replay(store, clock):
    """Both results are recorded then: the handler gets them one after the other, as in the first pass."""
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    slow_may_end = asyncio.Event()

    async def handler(ctx):
        async def racing(name):
            await ctx.step(name, quick if name == "quick" else slow)
            return name

        tasks = [asyncio.create_task(racing(name)) for name in ("slow", "quick")]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = next(task.result() for task in tasks if task in done)
        await ctx.step(f"after {winner}", slow_may_end.set)
        await asyncio.gather(*tasks)
        await ctx.sleep(60)

    async def quick():
        pass

    async def slow():
        await slow_may_end.wait()

    run_id = await flow.trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    clock.advance(60)
    await worker.run_until_idle()
    await worker.close()
    run = await flow.get_run(run_id, store)

    steps = [step.step_id for step in await flow.steps(run_id, store)]

    assert run.status == "SUCCESS"
    assert "after quick" in steps
    assert "after slow" not in steps


@pytest.mark.row("B2.13")
async def test_a_step_in_a_loop_has_a_number_of_its_own_each_time(store):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")

    async def handler(ctx):
        return [await ctx.step("fetch", lambda n=n: n) for n in range(3)]

    run_id = await flow.trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    run = await flow.get_run(run_id, store)

    assert run.output() == [0, 1, 2]
    assert [step.step_id for step in await run.steps()] == ["fetch", "fetch#2", "fetch#3"]


# -- forks and threads ----------------------------------------------------------------------------------


@pytest.mark.row("B2.17")
async def test_a_forked_child_is_refused_and_its_parent_goes_on(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")

    async def enqueue():
        with pytest.raises(pgqrs.ConnectionFailed, match="fork"):
            await producer.enqueue("from the child")

    assert await forks.ended(forks.child(enqueue)) == 0
    assert await asyncio.wait_for(producer.enqueue("from the parent"), 20)
    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == 1


@pytest.mark.row("B2.18")
async def test_a_second_event_loop_may_use_a_store_or_is_told_why_not(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")

    async def enqueue():
        await producer.enqueue_many([1, 2])

    elsewhere = asyncio.to_thread(lambda: asyncio.run(enqueue()))
    if store.config.backend == "postgres":
        with pytest.raises(pgqrs.ConnectionFailed, match="another event loop"):
            await elsewhere
    else:
        await elsewhere
    await enqueue()

    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == (2 if store.config.backend == "postgres" else 4)
