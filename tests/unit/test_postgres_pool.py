"""The pool of connections, without a server: who gets one, who waits, and what becomes of broken ones."""

import asyncio

import asyncpg
import pytest

from pgqrs.db.drivers.postgres import pool as postgres_pool
from pgqrs.db.drivers.postgres.pool import ConnectionPool


class Connection:
    def __init__(self, number):
        self.number = number
        self.closed = False

    def is_closed(self):
        return self.closed

    def terminate(self):
        self.closed = True

    async def close(self):
        self.closed = True


@pytest.fixture
def made():
    return []


@pytest.fixture
def pool(made):
    async def connect():
        made.append(Connection(len(made)))
        return made[-1]

    return ConnectionPool(connect, size=2)


async def test_the_one_used_last_is_used_next(pool, made):
    one, two = await pool.take(1), await pool.take(1)
    pool.give(one)
    pool.give(two)

    assert await pool.take(1) is two
    assert len(made) == 2


@pytest.mark.row("B4.12")
async def test_those_beyond_its_size_wait_in_turn(pool, made):
    one, two = await pool.take(1), await pool.take(1)
    third = asyncio.create_task(pool.take(5))
    fourth = asyncio.create_task(pool.take(5))
    await asyncio.sleep(0)

    pool.give(one)
    assert await third is one
    pool.give(two)
    assert await fourth is two
    assert len(made) == 2


async def test_who_waits_in_vain_is_told(pool):
    await pool.take(1)
    await pool.take(1)

    with pytest.raises(TimeoutError):
        await pool.take(0.01)


async def test_a_turn_that_nobody_takes_goes_to_the_next(pool):
    one, _ = await pool.take(1), await pool.take(1)
    given_up = asyncio.create_task(pool.take(5))
    patient = asyncio.create_task(pool.take(5))
    await asyncio.sleep(0)

    # Its turn comes, and it is cancelled before it can take it.
    pool.give(one)
    given_up.cancel()

    assert await patient is one


async def test_a_broken_one_is_replaced(pool, made):
    one = await pool.take(1)
    one.closed = True
    pool.give(one)

    assert (await pool.take(1)).number == 1
    assert (await pool.take(1)).number == 2
    assert len(made) == 3


async def test_one_that_could_not_be_made_leaves_its_place(made):
    refusals = [OSError("no")]

    async def connect():
        if refusals:
            raise refusals.pop()
        return Connection(7)

    pool = ConnectionPool(connect, size=1)
    with pytest.raises(OSError, match="no"):
        await pool.take(1)

    assert (await pool.take(1)).number == 7


async def test_what_lies_idle_for_long_is_closed(pool, monkeypatch):
    one, two = await pool.take(1), await pool.take(1)
    pool.give(one)
    monkeypatch.setattr(postgres_pool, "_IDLE_SECONDS", -1.0)

    pool.give(two)

    assert one.closed
    assert not two.closed


async def test_closing_waits_for_those_in_use(pool):
    one, two = await pool.take(1), await pool.take(1)
    pool.give(one)
    closing = asyncio.create_task(pool.close())
    await asyncio.sleep(0)
    assert not closing.done()

    pool.give(two)
    await closing

    assert one.closed
    assert two.closed
    with pytest.raises(asyncpg.InterfaceError):
        await pool.take(1)


async def test_nobody_who_comes_later_overtakes_one_who_waits(pool):
    """A caller that gives a connection back and asks for the next one at once is behind those who wait."""
    one, _ = await pool.take(1), await pool.take(1)
    patient = asyncio.create_task(pool.take(5))
    await asyncio.sleep(0)

    pool.give(one)
    greedy = asyncio.create_task(pool.take(5))

    assert await patient is one
    await asyncio.sleep(0)
    assert not greedy.done()
    pool.give(one)
    assert await greedy is one


async def test_under_load_all_wait_about_equally(pool):
    """Two busy callers kept a third from its turn for as long as they liked."""
    turns = dict.fromkeys("abcdef", 0)

    async def busy(name):
        while sum(turns.values()) < 300:
            connection = await pool.take(5)
            turns[name] += 1
            await asyncio.sleep(0)
            pool.give(connection)

    await asyncio.gather(*map(busy, turns))

    assert max(turns.values()) - min(turns.values()) <= 2


async def test_who_waits_makes_a_connection_in_place_of_a_broken_one(pool, made):
    one, _ = await pool.take(1), await pool.take(1)
    waiting = asyncio.create_task(pool.take(5))
    await asyncio.sleep(0)

    one.closed = True
    pool.give(one)

    assert (await waiting).number == 2
    assert len(made) == 3


async def test_a_connection_that_breaks_on_its_way_to_the_one_who_waits_is_replaced(pool, made):
    one, _ = await pool.take(1), await pool.take(1)
    waiting = asyncio.create_task(pool.take(5))
    await asyncio.sleep(0)

    pool.give(one)
    one.closed = True

    assert (await waiting).number == 2


async def test_closing_tells_those_who_wait(pool):
    one, two = await pool.take(1), await pool.take(1)
    waiting = asyncio.create_task(pool.take(5))
    await asyncio.sleep(0)
    closing = asyncio.create_task(pool.close())

    with pytest.raises(asyncpg.InterfaceError):
        await waiting
    pool.give(one)
    pool.give(two)
    await closing
