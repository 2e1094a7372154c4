"""Dispatchers as real processes: killed at every point, several at once, transactions that commit late."""

import asyncio
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import pgqrs
from rig import dispatchers
from rig.outbox import deliveries, emit, first_deliveries, new_runs

pytestmark = pytest.mark.several_processes

SOAK = bool(os.environ.get("PGQRS_SOAK"))


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def start(config, ledger):
    started = []

    def start_one(trap="", count=1):
        started.append(dispatchers.start(config, ledger, trap, count))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


async def until_nothing_is_pending(store, seconds=60):
    async with asyncio.timeout(seconds):
        while (await pgqrs.admin(store).outbox.counts()).pending:
            await asyncio.sleep(0.02)


def assert_all_in_order(ledger, expected):
    """Each event at least once, under one id, each run's first deliveries in its order."""
    assert first_deliveries(ledger) == expected
    ids = {(d.run_id, d.number, d.event_id) for d in deliveries(ledger)}
    assert len(ids) == sum(map(len, expected.values()))


CLAIMING = ["before outbox.look", "before outbox.claim", "sql claim_events", "sql events_held", "after outbox.claim"]


@pytest.mark.row("B9.1")
@pytest.mark.parametrize(
    "trap",
    [
        *CLAIMING,
        "publish",
        "before outbox.published",
        "sql mark_published",
        "sql pull_next",
        "after outbox.published",
    ],
)
async def test_a_dispatcher_killed_anywhere_loses_nothing_and_keeps_order_and_ids(
    live_store, connect, start, ledger, trap
):
    runs = await new_runs(live_store, 3)
    await emit(live_store, [(run_id, "order.shipped", f'{{"n":{n}}}') for n in range(3) for run_id in runs])

    # A claim takes several events, so there are fewer of them.
    process = start(trap, count=2 if trap in CLAIMING else 4)
    assert await asyncio.to_thread(process.wait, 30) == -signal.SIGKILL
    before = deliveries(ledger)
    # An hour later by the clock of whoever takes over: every lease is over.
    later = await connect(clock=pgqrs.ManualClock(datetime.now(UTC) + timedelta(hours=1)))

    async def publish(event):
        with ledger.open("a") as file:
            file.write(f"{event.run_id} {event.payload['n']} {event.id} {os.getpid()}\n")

    await pgqrs.dispatcher(later).to(publish).run_until_idle()

    again = max(Counter(d.event_id for d in deliveries(ledger)).values())
    print(f"{live_store.config.backend}: killed {trap}: {len(before)} delivered before, {again} times at most")
    assert_all_in_order(ledger, {run_id: [0, 1, 2] for run_id in runs})
    assert (await pgqrs.admin(later).outbox.counts()).published == 9
    assert again <= 2


@pytest.mark.row("B9.1")
async def test_the_events_of_a_killed_dispatcher_are_published_by_another_within_the_lease(live_store, start, ledger):
    [run_id] = await new_runs(live_store, 1)
    await emit(live_store, [(run_id, "order.shipped", f'{{"n":{n}}}') for n in range(5)])
    process = start("before outbox.published", count=3)
    assert await asyncio.to_thread(process.wait, 30) == -signal.SIGKILL

    start()
    await until_nothing_is_pending(live_store)

    assert_all_in_order(ledger, {run_id: [0, 1, 2, 3, 4]})
    assert len(deliveries(ledger)) == 6


@pytest.mark.row("B9.2")
async def test_several_dispatchers_keep_the_order_of_each_run_while_some_are_killed(live_store, start, ledger):
    count, run_count, each = (5, 100, 40) if SOAK else (3, 12, 10)
    runs = await new_runs(live_store, run_count)
    processes = [start() for _ in range(count)]
    for process in processes:
        assert (await asyncio.to_thread(process.stdout.readline)).strip() == "ready"
    dice = random.Random(7)

    for n in range(each):
        await emit(live_store, [(run_id, "order.shipped", f'{{"n":{n}}}') for run_id in runs])
        if n in (each // 3, each // 2):
            victim = dice.choice(processes)
            processes.remove(victim)
            os.kill(victim.pid, signal.SIGKILL)
            processes.append(start())
    await until_nothing_is_pending(live_store, 300)

    got = deliveries(ledger)
    print(
        f"{live_store.config.backend}: {run_count * each} events by {count} dispatchers, {len(got)} deliveries, "
        f"shares {sorted(Counter(d.pid for d in got).values())}"
    )
    assert_all_in_order(ledger, {run_id: list(range(each)) for run_id in runs})


@pytest.mark.row("B9.2")
@pytest.mark.backends("postgres")
async def test_an_event_that_is_committed_late_is_not_passed_over(live_store, start, ledger, config):
    """Ids are given before the commit: whoever goes by the highest id that was published loses what comes late."""
    import asyncpg

    late, *others = await new_runs(live_store, 6)
    for _ in range(5 if SOAK else 3):
        start()
    connection = await asyncpg.connect(config.dsn)
    transaction = connection.transaction()
    await transaction.start()
    schema = config.schema
    await connection.execute(f'select 1 from "{schema}".pgqrs_workflow_runs where run_id = $1 for update', late)
    lowest = await connection.fetchval(
        f"""insert into "{schema}".pgqrs_outbox_events
            (event_uuid, aggregate_id, workflow, event_type, payload, created_at, visible_after)
        values (gen_random_uuid()::text, $1, 'orders', 'order.shipped', '{{"n":0}}', now(), now())
        returning event_id""",
        late,
    )
    for n in range(5):
        await emit(live_store, [(run_id, "order.shipped", f'{{"n":{n}}}') for run_id in others])
    await until_nothing_is_pending(live_store)
    before = {d.run_id for d in deliveries(ledger)}

    await transaction.commit()
    await connection.close()
    await emit(live_store, [(late, "order.shipped", f'{{"n":{n}}}') for n in range(1, 5)])
    await until_nothing_is_pending(live_store)

    assert before == set(others)
    assert lowest == 1
    assert_all_in_order(ledger, {run_id: list(range(5)) for run_id in (late, *others)})
    assert len(deliveries(ledger)) == 30


async def test_a_stopped_dispatcher_process_ends_by_itself_and_leaves_nothing_held(live_store, start, ledger):
    runs = await new_runs(live_store, 2)
    process = start()
    assert (await asyncio.to_thread(process.stdout.readline)).strip() == "ready"
    await emit(live_store, [(run_id, "order.shipped", '{"n":0}') for run_id in runs])
    await until_nothing_is_pending(live_store)

    os.kill(process.pid, signal.SIGTERM)

    assert await asyncio.to_thread(process.wait, 30) == 0
    assert_all_in_order(ledger, {run_id: [0] for run_id in runs})
