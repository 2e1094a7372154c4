"""Promotion among real processes: workers at work on the file meanwhile, and the promotion itself killed."""

import asyncio
import os
import secrets
import signal
from collections import Counter

import pytest

import pgqrs
from conftest import DSN, drop_schema
from rig import promotions
from rig.invariants import check_invariants
from rig.workers import effects, line_of

pytestmark = pytest.mark.backends("sqlite")

flow = pgqrs.workflow("flow")
RUNS = 1_000
LEASE_SECONDS = 2
# Where what is begun again is counted: on a busy machine two seconds run out by themselves, which is another fault.
PATIENT_LEASE_SECONDS = 10


@pytest.fixture
async def target(backend):
    if DSN not in os.environ:
        pytest.skip(os.environ["PGQRS_TEST_POSTGRES_MISSING"])
    config = pgqrs.Config(os.environ[DSN], schema=f"t_{secrets.token_hex(8)}", pool_size=4)
    yield config
    try:
        await check_invariants(config)
    finally:
        await drop_schema(config)


@pytest.fixture
async def start():
    """Starts programs, and ends them when the test has."""
    started = []

    def start_one(*given, **settings):
        process = promotions.start(*given, **settings)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
async def source(config):
    async with pgqrs.connect_with(config) as store:
        await store.create_workflow("flow")
        yield store


async def results(config, run_ids):
    async with pgqrs.connect_with(config) as store:
        runs = [await flow.get_run(run_id, store) for run_id in run_ids]
        return await asyncio.gather(*(run.result(90) for run in runs))


async def lines_in(ledger, count):
    """When that many effects have happened."""
    async with asyncio.timeout(60):
        while not ledger.exists() or len(ledger.read_bytes().splitlines()) < count:
            await asyncio.sleep(0.01)


async def test_a_thousand_runs_in_flight_all_end_and_none_is_run_twice_beyond_the_guarantee(
    source, config, target, start, tmp_path
):
    ledger = tmp_path / "ledger"
    ids = await flow.trigger_many(list(range(RUNS))).execute(source)
    old = [start("work", config, ledger, lease_seconds=PATIENT_LEASE_SECONDS) for _ in range(3)]
    assert [await line_of(process) for process in old] == ["ready"] * 3
    await lines_in(ledger, 200)
    # One of them is lost before, with what it has in its hands; the others are at work all the while.
    os.kill(old[0].pid, signal.SIGKILL)

    promoting = start("promote", target, config.dsn)
    rows, handed_back = map(int, (await line_of(promoting)).split())
    told = [await line_of(process) for process in old[1:]]
    begun_there = Counter((effect.run_id, effect.step) for effect in effects(ledger))
    new = [start("work", target, ledger, lease_seconds=PATIENT_LEASE_SECONDS) for _ in range(2)]
    ends = await results(target, ids)

    done = Counter((effect.run_id, effect.step) for effect in effects(ledger))
    again = {key: count for key, count in done.items() if count > 1}
    old_pids = {process.pid for process in old}
    print(f"{rows} rows, {handed_back} held, {len(begun_there)} steps begun before, {len(again)} again after")
    assert told == [f"promoted {target.schema}"] * 2
    assert ends == [[n, *promotions.STEPS] for n in range(RUNS)]
    # It was in flight: some was done there, and most of it here.
    assert 200 <= len(begun_there) < 3 * RUNS - 200
    assert set(done) == {(run_id, step) for run_id in ids for step in promotions.STEPS}
    # Only what was at work is begun again, and once; what a worker had leased ahead of its ten slots had not begun.
    assert set(again.values()) <= {2}
    assert len(again) <= min(handed_back, 10 * len(old))
    for run_id, step in again:
        pids = [effect.pid for effect in effects(ledger) if (effect.run_id, effect.step) == (run_id, step)]
        assert pids[0] in old_pids
    assert {process.poll() for process in new} == {None}


POINTS = [
    ("before", "promotion.promote", 1),
    ("sql", "lock_table", 2),
    ("sql", "insert_rows", 1),
    ("sql", "insert_rows", 4),
    ("sql", "next_copied", 8),
    ("sql", "set_last_id", 1),
    ("sql", "write_origin", 1),
    ("sql", "rename_table", 5),
    ("commit", "all", 1),
    ("commit", "promotion.promote", 1),
    ("reply", "promotion.promote", 1),
]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(map(str, point)))
async def test_a_promotion_that_is_killed_anywhere_can_be_run_again(config, target, start, point):
    async with pgqrs.connect_with(config) as source:
        await source.create_workflow("flow")
        ids = await flow.trigger_many(list(range(20))).execute(source)

    killed = start("promote", target, config.dsn, *point)
    assert await asyncio.to_thread(killed.wait) == -signal.SIGKILL

    sealed = point in POINTS[-2:]
    assert await refuses(config) is sealed
    # Before it is all there, nothing is.
    assert await rows_of(target) == (20 if point == POINTS[-1] else 0)
    again = start("promote", target, config.dsn)
    assert await asyncio.to_thread(again.wait) == 0
    assert await refuses(config)
    assert await rows_of(target) == 20
    async with pgqrs.connect_with(target) as there:
        assert [run.run_id for run in await flow.runs(there, limit=100)] == sorted(ids, reverse=True)


async def refuses(config):
    try:
        async with pgqrs.connect_with(config) as store:
            await store.create_queue("can-be-written")
    except pgqrs.StorePromoted:
        return True
    return False


async def rows_of(config):
    async with pgqrs.connect_with(config) as store:
        if not await pgqrs.admin(store).version():
            return 0
        return len(await flow.runs(store, limit=100)) if await pgqrs.admin(store).queues() else 0


async def test_while_it_copies_nobody_can_write_to_the_file(source, config, target):
    """And nothing that is written meanwhile is lost: it is not written."""
    await flow.trigger_many([None] * 10).execute(source)
    tried = []

    def progress(table, done, total):
        if table == "pgqrs_workflow_runs" and done == total:
            tried.append(asyncio.ensure_future(flow.trigger("late").execute(source)))

    report = await pgqrs.promote(config, target, progress=progress)

    [late] = await asyncio.gather(*tried, return_exceptions=True)
    assert isinstance(late, pgqrs.StorePromoted)
    assert {each.table: each.rows for each in report.tables}["pgqrs_workflow_runs"] == 10
