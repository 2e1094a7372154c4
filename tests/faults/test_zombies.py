"""Workers that were only thought dead change nothing, and the reaper ends no run that its owner has saved."""

import asyncio
import os
import signal

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.drivers import open_driver
from pgqrs.db.queries import Query
from pgqrs.db.runs import claims, settlement, triggers
from pgqrs.db.runs.history import Emission
from pgqrs.db.runs.records import Ended, RunWrite, StepRecord, Suspended
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import messages, workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.types import RunStatus, StepStatus
from rig import forks

LEASE = 10
DONE = Ended(RunStatus.SUCCESS, output="1")
STEP = StepRecord("stale", 0, StepStatus.SUCCESS, output="1")
LOST = {"error": '{"type": "WorkerLost"}', "last_error": "worker_lost"}


class Hands:
    """A workflow, and a worker that does by hand what the engine would do."""

    def __init__(self, store):
        self.store, self.db = store, store.database
        self.flow = pgqrs.workflow("flow")

    async def begin(self):
        self.workflow = await workflows.create(self.db, "flow")
        self.queue_ids = [self.workflow.queue_id]
        self.worker_id = await workers.register(
            self.db, queue_id=self.workflow.queue_id, name="w", port=0, info={"pid": 1}
        )
        return self

    async def trigger(self, count=1, **options):
        new = NewRuns(self.workflow.workflow_id, self.workflow.queue_id, ["null"] * count, **options)
        return await triggers.trigger(self.db, new)

    async def claim(self, batch=1):
        source = Source(self.workflow.queue_id, LEASE)
        return await claims.claim(self.db, [source], worker_id=self.worker_id, batch=batch)

    async def status(self, run_id):
        return (await self.flow.get_run(run_id, self.store)).status

    async def rows(self):
        tables = ("workflow_runs", "messages", "workflow_steps", "signals", "workflow_events", "outbox_events")
        return {
            table: [tuple(row) for row in await self.db.fetch(Query(table, f"select * from pgqrs_{table}"))]
            for table in tables
        }


@pytest.fixture
async def hands(store):
    return await Hands(store).begin()


@pytest.mark.row("B1.5")
async def test_a_worker_that_takes_its_own_run_again_is_fenced_from_its_first_try(hands, clock):
    [run_id] = await hands.trigger()
    [first] = await hands.claim()
    clock.advance(LEASE)
    [second] = await hands.claim()
    assert (first.run_id, second.run_id) == (run_id, run_id)

    assert first.fence != second.fence
    assert await settlement.commit(hands.db, [RunWrite(first.fence, (STEP,), DONE)]) == set()
    assert await settlement.commit(hands.db, [RunWrite(second.fence, (), DONE)]) == {second.fence}
    assert await hands.flow.steps(run_id, hands.store) == []


async def emits(hands, fence):
    emission = Emission(fence[0], "order.shipped", "1")
    assert await settlement.commit(hands.db, [RunWrite(fence, (STEP,), None, (emission,))]) == set()


async def transacts(hands, fence):
    async def work(transaction):
        raise AssertionError("it must not even begin")

    assert await claims.transact(hands.db, fence, STEP, work) is None


async def shows_progress(hands, fence):
    await claims.show_progress(hands.db, fence, text='{"done": 1}')


async def retries(hands, fence):
    again = Suspended(RunStatus.RUNNING, delay=1, count_attempt=True)
    assert await settlement.commit(hands.db, [RunWrite(fence, (), again)]) == set()


async def sleeps(hands, fence):
    asleep = Suspended(RunStatus.PAUSED, delay=60, waiting_for="sleep")
    assert await settlement.commit(hands.db, [RunWrite(fence, (STEP,), asleep)]) == set()


async def hands_back(hands, fence):
    # What a worker does with a run that was cancelled, or that it has no time for.
    assert await settlement.commit(hands.db, [RunWrite(fence, (), Suspended(RunStatus.PENDING))]) == set()


async def takes_a_signal(hands, fence):
    assert await claims.take_signal(hands.db, fence, STEP, name="go") == (False, None)


async def spawns(hands, fence):
    new = NewRuns(hands.workflow.workflow_id, hands.workflow.queue_id, ["null"], parent_run_id=fence[0])
    assert await claims.spawn(hands.db, fence, STEP, new) is None


VERBS = [emits, transacts, shows_progress, retries, sleeps, hands_back, takes_a_signal, spawns]


@pytest.mark.row("B1.7")
@pytest.mark.parametrize("verb", VERBS, ids=lambda each: each.__name__)
async def test_whatever_a_zombie_tries_is_refused(hands, clock, verb):
    [run_id] = await hands.trigger()
    [zombie] = await hands.claim()
    await hands.flow.signal(run_id, hands.store, "go", 1)
    clock.advance(LEASE)
    await hands.claim()
    before = await hands.rows()

    await verb(hands, zombie.fence)

    assert await hands.rows() == before


@pytest.mark.row("B1.8")
@pytest.mark.parametrize("owner_does", ["ends it", "renews its lease"])
async def test_a_run_that_its_owner_saves_between_the_reapers_look_and_its_write_is_left_alone(
    hands, clock, owner_does
):
    [run_id] = await hands.trigger(max_attempts=1)
    [owner] = await hands.claim()
    clock.advance(LEASE)

    assert await claims.some_are_lost(hands.db, hands.queue_ids)
    if owner_does == "ends it":
        assert await settlement.commit(hands.db, [RunWrite(owner.fence, (), DONE)]) == {owner.fence}
    else:
        assert await messages.extend(hands.db, [owner.fence[1:]], seconds=LEASE)
    ended = await claims.end_lost(hands.db, hands.queue_ids, **LOST)

    assert ended == []
    assert await hands.status(run_id) == ("SUCCESS" if owner_does == "ends it" else "RUNNING")


@pytest.mark.row("B1.9")
@pytest.mark.several_processes
async def test_a_reaper_that_is_killed_with_its_locks_leaves_the_runs_to_the_next(hands, clock, config):
    run_ids = await hands.trigger(3, max_attempts=1)
    await hands.claim(3)
    clock.advance(LEASE)

    async def reap_and_die():
        db = await open_driver(config, clock)
        # The rows are locked, and nothing is committed yet.
        with faults.injected(faults.at("sql", "end_runs", lambda: os.kill(os.getpid(), signal.SIGKILL))):
            await claims.end_lost(db, hands.queue_ids, **LOST)

    assert await forks.ended(forks.child(reap_and_die)) == -signal.SIGKILL
    async with asyncio.timeout(20):
        ended = []
        while len(ended) < 3:
            # PostgreSQL needs a moment to notice that its client is gone.
            ended += await claims.end_lost(hands.db, hands.queue_ids, **LOST)
    assert sorted(ended) == sorted(run_ids)
    assert [await hands.status(each) for each in run_ids] == ["ERROR"] * 3


@pytest.mark.row("B1.10")
@pytest.mark.backends("postgres")
async def test_lost_runs_that_cannot_be_had_do_not_hide_the_others(hands, clock, config):
    import asyncpg

    run_ids = await hands.trigger(250, max_attempts=1)
    await hands.claim(250)
    clock.advance(LEASE)
    # More than one look takes, and the oldest of all: held by somebody's open transaction.
    stuck = run_ids[:150]
    connection = await asyncpg.connect(config.dsn)
    async with connection.transaction():
        await connection.execute(
            f'select 1 from "{config.schema}".pgqrs_messages where run_id = any($1::bigint[]) for update', stuck
        )
        ended = await claims.end_lost(hands.db, hands.queue_ids, **LOST)
        assert not set(ended) & set(stuck)
        assert len(ended) == 100
    await connection.close()

    while more := await claims.end_lost(hands.db, hands.queue_ids, **LOST):
        ended += more
    assert sorted(ended) == sorted(run_ids)
