"""Another program's tables of our names: a schema that holds them is refused, with the way out, and stays as it is."""

import pytest

import pgqrs
from pgqrs.clock import DatabaseClock
from pgqrs.db import migrations
from pgqrs.db.drivers import open_driver
from pgqrs.db.queries import Query

# Of the distribution `pgqrs` on the package index, as far as it matters here.
OTHERS = (
    "create table pgqrs_queues (id {id}, queue_name text not null unique, created_at {time} not null)",
    "create table pgqrs_workers (id {id}, queue_id {ref} references pgqrs_queues (id), hostname text not null)",
)


@pytest.fixture
async def others(config, connect):
    """The other program has installed its tables here. The connect fixture cleans up behind them."""
    driver = await open_driver(config, DatabaseClock())
    if config.backend == "postgres":
        await driver.execute(Query("schema", f'create schema "{config.schema}"'))
    for number, statement in enumerate(OTHERS):
        await driver.execute(Query(f"others_{number}", statement))
    shape = await migrations.shape(driver)
    await driver.close()
    return shape


@pytest.fixture
async def db(config, connect):
    driver = await open_driver(config, DatabaseClock())
    yield driver
    await driver.close()


def way_out(config):
    return "PGQRS_SCHEMA=" if config.backend == "postgres" else "PGQRS_DSN="


async def test_an_installation_beside_them_is_refused_and_writes_nothing(others, db, config):
    with pytest.raises(pgqrs.SchemaMismatch, match="another program's table pgqrs_queues") as caught:
        await migrations.install(db)

    assert way_out(config) in str(caught.value)
    assert "run `pgqrs install`" not in str(caught.value)
    assert (caught.value.found, caught.value.expected) == (0, migrations.latest_version())
    assert await migrations.shape(db) == others
    assert await migrations.version(db) == 0


@pytest.mark.parametrize("install", [False, True])
async def test_connecting_to_them_is_refused(others, config, connect, install):
    with pytest.raises(pgqrs.SchemaMismatch, match="another program's table pgqrs_queues") as caught:
        await connect(install=install)

    assert way_out(config) in str(caught.value)


async def test_an_empty_history_of_ours_beside_them_is_refused_too(others, db):
    """As `pgqrs schema sql`, run by hand, leaves it when its second statement fails."""
    await db.execute(migrations._SQL["create_history"])

    with pytest.raises(pgqrs.SchemaMismatch, match="another program's table pgqrs_queues"):
        await migrations.install(db)


async def test_our_tables_without_their_history_are_not_called_another_programs(db):
    """Half of an installation of ours: what the database says of it is the cause."""
    await migrations.install(db)
    await db.execute(Query("forget", "drop table pgqrs_migrations"))

    with pytest.raises(Exception, match="already exists") as caught:
        await migrations.install(db)

    assert not isinstance(caught.value, pgqrs.SchemaMismatch)


async def test_a_history_without_tables_is_still_named_by_verify(store):
    await store.database.execute(Query("damage", "drop table pgqrs_schedules"))

    with pytest.raises(pgqrs.SchemaMismatch, match="lacks column pgqrs_schedules"):
        await pgqrs.admin(store).verify()


@pytest.mark.backends("postgres")
async def test_the_way_out_works(others, db, config):
    other = f"{config.schema}_durable"
    try:
        async with pgqrs.connect(config.dsn, schema=other, install=True) as store:
            await pgqrs.admin(store).verify()
    finally:
        await db.execute(Query("drop", f'drop schema if exists "{other}" cascade'))
