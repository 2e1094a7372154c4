"""Who waits for a run's result is told when the store cannot give it any more."""

import asyncio

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.tables import runs


@pytest.fixture
async def waiting(store, flow):
    """Two callers that wait for the result of a run that nobody executes."""
    run = await flow.get_run(await flow.trigger(1).execute(store), store)
    tasks = [asyncio.create_task(run.result()) for _ in range(2)]
    with faults.injected(lambda point: looked.set() if point == ("after", "runs.finished") else None):
        looked = asyncio.Event()
        await asyncio.wait_for(looked.wait(), 20)
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def errors_of(tasks):
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)


async def test_a_store_that_is_closed_tells_those_who_wait(store, waiting):
    await store.close()

    first, second = await errors_of(waiting)

    assert isinstance(first, pgqrs.ConnectionFailed)
    assert "closed" in str(first)
    assert str(first) == str(second)
    assert first is not second


async def test_a_closed_store_gives_no_results(store, flow):
    run = await flow.get_run(await flow.trigger(1).execute(store), store)
    await store.close()

    with pytest.raises(pgqrs.ConnectionFailed, match="closed"):
        await asyncio.wait_for(run.result(), 20)


async def test_a_store_that_was_promoted_tells_those_who_wait(store, waiting, monkeypatch):
    async def promoted(_db, _run_ids):
        raise pgqrs.StorePromoted("this file", promoted_to="postgresql://there", schema="public")

    monkeypatch.setattr(runs, "finished", promoted)
    store.database.hints.wake()

    errors = await errors_of(waiting)

    assert [type(error) for error in errors] == [pgqrs.StorePromoted] * 2
    assert errors[0].promoted_to == "postgresql://there"


async def test_whatever_goes_wrong_those_who_wait_are_told(store, waiting, monkeypatch):
    async def broken(_db, _run_ids):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(runs, "finished", broken)
    store.database.hints.wake()

    assert [type(error) for error in await errors_of(waiting)] == [ZeroDivisionError] * 2


async def test_after_an_error_results_can_be_waited_for_again(store, flow, run, waiting, monkeypatch):
    with monkeypatch.context() as patch:

        async def broken(_db, _run_ids):
            raise ZeroDivisionError("a bug")

        patch.setattr(runs, "finished", broken)
        store.database.hints.wake()
        await errors_of(waiting)

    later = await flow.get_run(await flow.trigger(2).execute(store), store)
    result = asyncio.create_task(later.result())
    await run(lambda ctx, n: n + 1, run_id=later.run_id)

    assert await asyncio.wait_for(result, 20) == 3


async def test_an_outage_is_waited_out(store, flow, run, waiting, monkeypatch):
    finished = runs.finished
    outages = [1, 1]

    async def away(db, run_ids):
        if outages:
            outages.pop()
            raise pgqrs.ConnectionFailed("away")
        return await finished(db, run_ids)

    monkeypatch.setattr(runs, "finished", away)
    await run(lambda ctx, n: n + 1, run_id=(await flow.runs(store))[0].run_id)

    assert await errors_of(waiting) == [2, 2]
