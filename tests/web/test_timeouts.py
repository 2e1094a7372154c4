"""A list that takes too long ends in the database, not only in the answer."""

import asyncio
import os

import pytest

import pgqrs
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from pgqrs.web import routing
from rig import http

# Minutes of work, if nobody ends it.
ENDLESS = Query(
    "endless",
    "with recursive n (x) as (select 1 union all select x + 1 from n where x < 2000000000) select max(x) from n",
)


async def _endless(asked):
    db = await asked.store.ready()
    await db.perform(lambda unit: unit.fetch(ENDLESS), kind=Kind.READ, idempotent=True)


@pytest.fixture
def client(store, monkeypatch):
    slow = routing.Endpoint("GET", "/slow", _endless, None, "Slow", seconds=0.2)
    monkeypatch.setattr("pgqrs.web.application.endpoints", lambda **_: [slow])
    return http.client(store)


@pytest.mark.backends("sqlite")
async def test_readers_of_sqlite_are_free_again(store, client):
    # As many as there are readers, and more that wait behind them.
    answers = await asyncio.gather(*(client.get("/slow") for _ in range(6)))
    assert [each.status_code for each in answers] == [503] * 6

    async with asyncio.timeout(60):
        assert await pgqrs.admin(store).runs() == []


@pytest.mark.backends("postgres")
async def test_the_statement_ends_on_postgresql(store, client):
    import asyncpg

    answer = await client.get("/slow")
    assert (answer.status_code, answer.json()["code"]) == (503, "too-slow")

    other = await asyncpg.connect(os.environ["PGQRS_TEST_POSTGRES_DSN"])
    try:
        async with asyncio.timeout(60):
            while await other.fetchval(
                "select count(*) from pg_stat_activity where query like '%2000000000%' and state = 'active' and pid <> pg_backend_pid()"
            ):
                await asyncio.sleep(0.05)
    finally:
        await other.close()


@pytest.mark.backends("postgres")
async def test_a_list_that_waits_for_a_lock_does_not_wait_for_ever(store, monkeypatch):
    import asyncpg

    from pgqrs.web.api import runs

    [listed] = [each for each in runs.ENDPOINTS if each.handler is runs.find]
    quick = routing.Endpoint("GET", "/runs", listed.handler, None, "", query=listed.query, seconds=0.2)
    monkeypatch.setattr("pgqrs.web.application.endpoints", lambda **_: [quick])
    other = await asyncpg.connect(os.environ["PGQRS_TEST_POSTGRES_DSN"])
    try:
        async with other.transaction():
            await other.execute(f'lock table "{store.config.schema}".pgqrs_workflow_runs in access exclusive mode')
            async with http.client(store) as client:
                answer = await client.get("/runs")
        assert answer.status_code == 503
    finally:
        await other.close()

    # The connection that it had is whole.
    assert await pgqrs.admin(store).runs() == []
