"""Schedulers as real processes, killed one after the other: each slot fires exactly once, and none is missing."""

import asyncio
import os
import random
import statistics
import time
from datetime import timedelta

import pytest

import pgqrs
from pgqrs.engine.schedules.scheduler import Scheduler
from rig import workers
from rig.workers import effects, line_of

pytestmark = pytest.mark.several_processes

SOAK = bool(os.environ.get("PGQRS_SOAK"))
PROCESSES, SECONDS, KILL_EVERY = (20, 60, 3) if SOAK else (4, 5, 2)


@pytest.fixture
async def start(config, tmp_path):
    """Starts a process that schedules and works."""
    started = []

    def start_one():
        process = workers.start("schedule", config, tmp_path / "ledger", lease_seconds=2, pool_size=2)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


@pytest.mark.row("B6.7")
@pytest.mark.timeout(400)
async def test_each_slot_fires_exactly_once_while_schedulers_are_killed(start, live_store, config, tmp_path):
    await live_store.create_workflow("flow")
    alive = [start() for _ in range(PROCESSES)]
    assert [await line_of(process) for process in alive] == ["ready"] * PROCESSES
    schedules = pgqrs.schedules(live_store)
    created = await schedules.create(
        "s", "flow", cron="* * * * * *", overlap="allow", catch_up="all", catch_up_limit=1000
    )

    kills = 0
    began = time.monotonic()
    while time.monotonic() - began < SECONDS:
        # Anywhere in a second, the moment of firing included.
        await asyncio.sleep(KILL_EVERY + random.uniform(-0.5, 0.5))
        alive.pop(0).kill()
        alive.append(start())
        kills += 1
    for process in alive:
        process.kill()
        process.wait()
    await Scheduler(live_store.database, live_store.config).fire_due()
    await schedules.pause("s")

    slots = (await schedules.slots("s", limit=1000))[::-1]
    runs = await pgqrs.workflow("flow").runs(live_store, limit=1000)
    first = created.created_at.replace(microsecond=0) + timedelta(seconds=1)
    late = [(slot.created_at - slot.slot_at).total_seconds() for slot in slots]
    executed = {effect.run_id for effect in effects(tmp_path / "ledger")}
    print(
        f"{config.backend}: {PROCESSES} processes, {kills} killed, {len(slots)} slots, {len(runs)} runs, "
        f"{len(executed)} executed; fired {statistics.median(late):.3f} s late, at most {max(late):.3f} s"
    )
    assert [slot.slot_at for slot in slots] == [first + timedelta(seconds=n) for n in range(len(slots))]
    assert len(slots) >= SECONDS - 1
    assert {slot.state for slot in slots} == {pgqrs.SlotState.FIRED}
    assert {(slot.run_id, slot.slot_at.isoformat()) for slot in slots} == {
        (run.run_id, run.attributes["slot"]) for run in runs
    }
    assert len(runs) == len(slots)
