"""Where a worker dies or stands still."""

import asyncio
from types import SimpleNamespace

from pgqrs import faults
from pgqrs.db.database import Kind, store_call
from pgqrs.testing.crash_point import Boundary, CrashInjector, current_fate


@store_call(Kind.UNIT)
async def write(db):
    """What a worker asks for."""


@store_call(Kind.UNIT)
async def write_more(db):
    await write(db)


class Slow:
    """A database that takes its time."""

    def __init__(self):
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def perform(self, work, *, kind, idempotent):
        self.asked.set()
        await self.answers.wait()
        return await work(SimpleNamespace(perform=lambda part, **_: part(None)))


def struck_at(name, **options):
    """The fate of what this test calls from now on."""
    fate = CrashInjector(Boundary("before", f"{__name__.rpartition('.')[2]}.{name}", 1), **options)
    current_fate.set(fate)
    return fate


async def test_what_was_asked_for_is_carried_out_before_a_worker_stands_still():
    fate, slow = struck_at("write"), Slow()
    with faults.injected(fate):
        earlier = asyncio.create_task(write_more(slow))
        await slow.asked.wait()
        last = asyncio.create_task(write(slow))
        await fate.struck.wait()
        assert not fate.at_rest.is_set()

        slow.answers.set()
        await asyncio.wait_for(fate.at_rest.wait(), 60)
        assert (earlier.done(), last.done()) == (False, False)

        fate.wake()
        await asyncio.gather(earlier, last)


async def test_a_real_strike_waits_for_it_too():
    struck = []
    fate, slow = struck_at("write", strike=lambda: struck.append(slow.answers.is_set())), Slow()
    with faults.injected(fate):
        earlier = asyncio.create_task(write_more(slow))
        await slow.asked.wait()
        last = asyncio.create_task(write(slow))
        asyncio.get_running_loop().call_soon(slow.answers.set)
        await asyncio.gather(earlier, last)

    assert struck == [True]


async def test_a_part_of_a_call_is_no_boundary():
    fate, slow = struck_at("write"), Slow()
    slow.answers.set()
    with faults.injected(fate):
        await write_more(slow)

    assert {boundary.name.rpartition(".")[2] for boundary in fate.seen} == {"write_more"}
