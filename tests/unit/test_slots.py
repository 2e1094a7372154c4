"""The slots of a worker: how many runs it wants, and what it holds ahead."""

import asyncio
from types import SimpleNamespace

import pytest

from pgqrs.engine.runs import slots as module
from pgqrs.engine.runs.slots import Slots


@pytest.fixture
def pace(monkeypatch):
    """How many runs it may hold ahead."""
    ahead = SimpleNamespace(runs=0)
    monkeypatch.setattr(module._Pace, "ahead", lambda _self, at_most: min(at_most, ahead.runs))
    return ahead


@pytest.fixture
def finish():
    return asyncio.Event()


@pytest.fixture
async def slots(finish):
    async def execute(claim, held):
        await finish.wait()

    return Slots(2, execute=execute, on_room=lambda: None)


def claims(count):
    return [(SimpleNamespace(workflow_id=n % 2), None) for n in range(count)]


async def test_a_slow_worker_wants_what_it_has_room_for(slots, pace, finish):
    assert slots.wanted() == 2
    slots.take(claims(1))
    assert slots.wanted() == 1
    slots.take(claims(1))
    assert slots.wanted() == 0
    finish.set()


async def test_a_quick_worker_holds_some_ahead(slots, pace, finish):
    pace.runs = 2
    assert slots.wanted() == 4
    slots.take(claims(4))

    assert (len(slots.running), len(slots.ready)) == (2, 2)
    assert slots.wanted() == 0
    assert sum(slots.by_workflow().values()) == 4
    finish.set()


async def test_what_is_ready_begins_when_a_slot_is_free(slots, pace, finish):
    slots.take(claims(5))
    finish.set()
    while slots.running:
        await asyncio.sleep(0)

    assert slots.is_empty


async def test_closed_slots_begin_nothing(slots, pace, finish):
    slots.take(claims(5))
    slots.close()
    finish.set()
    while slots.running:
        await asyncio.sleep(0)

    assert len(slots.ready) == 3


async def test_a_task_that_ends_unexpectedly_is_logged_and_frees_its_slot(caplog):
    done = asyncio.Event()

    async def execute(claim, held):
        if claim.run_id == 1:
            raise RuntimeError("a mistake of the engine's")
        done.set()

    slots = Slots(1, execute=execute, on_room=lambda: None)
    slots.take([(SimpleNamespace(run_id=n, workflow_id=1), None) for n in (1, 2)])
    await asyncio.wait_for(done.wait(), 10)

    [record] = [each for each in caplog.records if "ended unexpectedly" in each.message]
    assert record.message.startswith("run 1: ")
    assert "a mistake of the engine's" in str(record.exc_info[1])
