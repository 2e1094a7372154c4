"""Real processes on one database: killed with real signals, racing each other, losing nothing."""

import asyncio
import os
import signal
import statistics
import time
from collections import Counter

import pytest

import pgqrs
from rig import programs

pytestmark = pytest.mark.several_processes


@pytest.fixture
async def ready(live_store):
    await live_store.create_queue("tasks")
    return live_store


@pytest.fixture
def processes():
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


async def line_of(process) -> str:
    return (await asyncio.to_thread(process.stdout.readline)).strip()


async def test_messages_of_a_killed_consumer_are_delivered_again_after_the_lease(ready, config, processes):
    ids = await (await ready.producer("tasks")).enqueue_many(range(3))
    process = programs.start("hold", config, 2)
    processes.append(process)
    assert [int(i) for i in (await line_of(process)).split()] == ids
    consumer = await ready.consumer("tasks")

    os.kill(process.pid, signal.SIGKILL)
    killed = time.monotonic()
    assert await consumer.dequeue(10) == []
    again = await consumer.dequeue(10, wait_seconds=30)
    seconds = time.monotonic() - killed

    assert [(m.id, m.attempts) for m in again] == [(i, 2) for i in ids]
    assert seconds <= 2 + 2
    assert len(await consumer.archive_many(again)) == 3


async def test_a_consumer_that_slept_through_its_lease_changes_nothing(ready, config, processes):
    [message_id] = await (await ready.producer("tasks")).enqueue_many(["x"])
    process = programs.start("hold", config, 1)
    processes.append(process)
    assert int(await line_of(process)) == message_id
    os.kill(process.pid, signal.SIGSTOP)
    consumer = await ready.consumer("tasks")
    [mine] = await consumer.dequeue(wait_seconds=30)

    os.kill(process.pid, signal.SIGCONT)
    process.stdin.write("go on\n")
    process.stdin.flush()

    assert [await line_of(process) for _ in range(4)] == ["0", "0", "0", "0"]
    assert await asyncio.to_thread(process.wait) == 0
    metrics = await pgqrs.admin(ready).queue_metrics("tasks")
    assert (metrics.archived, metrics.ready, metrics.leased) == (0, 0, 1)
    await mine.archive()


async def test_a_message_of_another_process_is_heard_of_at_once(ready, config, processes):
    process = programs.start("receive", config)
    processes.append(process)
    assert await line_of(process) == "ready"
    producer = await ready.producer("tasks")

    milliseconds = []
    for _ in range(20):
        await producer.enqueue(time.time())
        milliseconds.append(float(await line_of(process)))

    # The bound of the design is 100 ms on SQLite; polling alone would take a second and more.
    print(f"{config.backend}: median {statistics.median(milliseconds):.1f} ms, worst {max(milliseconds):.1f} ms")
    assert statistics.median(milliseconds) < 500


@pytest.mark.row("B5.4")
async def test_many_processes_with_many_tasks_lose_and_double_nothing(ready, config, processes, tmp_path):
    shape = (8, 8, 157) if os.environ.get("PGQRS_SOAK") else (4, 4, 10)
    count, tasks, each = shape
    ledger = tmp_path / "ledger"
    processes += [programs.start("work", config, tasks, each, ledger) for _ in range(count)]

    codes = await asyncio.gather(*(asyncio.to_thread(process.wait) for process in processes))

    handled = Counter(ledger.read_text().split())
    assert codes == [0] * count
    assert len(handled) == count * tasks * each
    assert set(handled.values()) == {1}
    assert (await pgqrs.admin(ready).queue_metrics("tasks")).archived == count * tasks * each
