"""The schema: installed once however many try, whole after a kill anywhere, refused when it is too new."""

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.clock import DatabaseClock
from pgqrs.db import migrations
from pgqrs.db.dialect import Dialect
from pgqrs.db.drivers import open_driver
from pgqrs.db.queries import Query
from rig import programs

GOLDEN = sorted(Path(__file__).parent.glob("schema_*.txt"))


@pytest.fixture
async def db(config, connect):
    """A database with nothing in it; the connect fixture cleans up behind it."""
    driver = await open_driver(config, DatabaseClock())
    yield driver
    await driver.close()


async def test_an_empty_database_has_version_0_and_then_the_latest(db):
    assert await migrations.version(db) == 0
    assert await migrations.install(db) == migrations.latest_version()
    assert await migrations.version(db) == migrations.latest_version()


async def test_installing_again_changes_nothing(db):
    await migrations.install(db)
    before = await migrations.shape(db)

    await migrations.install(db)

    assert await migrations.shape(db) == before


@pytest.mark.row("B10.4")
async def test_a_schema_migrated_step_by_step_equals_a_fresh_one(db, config, tmp_path):
    for migration in migrations.all_migrations():
        assert await migrations.install(db, up_to=migration.version) == migration.version
    stepwise = await migrations.shape(db)

    fresh = await open_driver(pgqrs.Config(f"sqlite:///{tmp_path / 'fresh.db'}"), DatabaseClock())
    await migrations.install(fresh)
    expected = await migrations.shape(fresh)
    await fresh.close()

    assert expected.missing_from(stepwise) == []
    assert stepwise.columns == expected.columns


@pytest.mark.row("B10.4")
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda file: file.stem)
async def test_each_schema_is_as_it_was_released(db, golden):
    """Released migrations do not change: a change of this file means that a new migration was due."""
    await migrations.install(db, up_to=int(golden.stem.removeprefix("schema_")))
    shape = await migrations.shape(db)

    lines = [f"{table}.{column}" for table, column in sorted(shape.columns)]
    assert lines == golden.read_text(encoding="utf-8").splitlines()


@pytest.mark.row("B10.3", "B10.6")
async def test_a_newer_schema_is_refused_with_the_way_out(db, connect):
    await migrations.install(db)
    newer = migrations.latest_version() + 1
    await db.execute(Query("future", f"insert into pgqrs_migrations values ({newer}, 'future', {{now}})"))

    for attempt in (connect(install=False), connect(install=True)):
        with pytest.raises(pgqrs.SchemaMismatch, match="upgrade pgqrs") as caught:
            await attempt
        assert (caught.value.found, caught.value.expected) == (newer, migrations.latest_version())


async def test_a_missing_schema_is_named_with_the_way_out(config, connect):
    if config.backend != "postgres":
        store = await connect(install=False)
        assert await pgqrs.admin(store).version() == migrations.latest_version()
        return
    store = await connect(install=False)

    with pytest.raises(pgqrs.SchemaNotInstalled, match="pgqrs install"):
        await store.create_queue("tasks")
    with pytest.raises(pgqrs.SchemaNotInstalled):
        await pgqrs.admin(store).verify()
    await pgqrs.admin(store).install()
    await store.create_queue("tasks")


async def test_verify_is_content_with_an_installed_schema(store):
    await pgqrs.admin(store).verify()


@pytest.mark.row("B10.2")
@pytest.mark.parametrize(
    ("damage", "lack"),
    [
        ("drop index {schema}pgqrs_messages_ready", "index pgqrs_messages_ready"),
        ("alter table pgqrs_queues rename column paused_at to stopped_at", "column pgqrs_queues.paused_at"),
        ("drop table pgqrs_schedules", "column pgqrs_schedules.cron"),
    ],
)
async def test_verify_names_what_is_missing(store, damage, lack):
    schema = store.database.dialect.schema
    prefix = f'"{schema}".' if schema else ""
    await store.database.execute(Query("damage", damage.replace("{schema}", prefix)))

    with pytest.raises(pgqrs.SchemaMismatch) as caught:
        await pgqrs.admin(store).verify()

    assert lack in str(caught.value)


@pytest.mark.row("B10.1")
@pytest.mark.several_processes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("attempt", range(20 if os.environ.get("PGQRS_SOAK") else 1))
async def test_twelve_processes_install_at_once(config, connect, attempt):
    processes = [programs.start("install", config) for _ in range(12)]

    codes = await asyncio.gather(*(asyncio.to_thread(process.wait) for process in processes))

    for process in processes:
        process.stdout.close()
        process.stdin.close()
    assert codes == [0] * 12


@pytest.mark.row("B3.4", "B10.1")
@pytest.mark.several_processes
async def test_a_kill_at_any_statement_of_the_installation_leaves_it_installable(config, connect):
    """A child is killed before each statement in turn; after each, the schema is either absent or whole."""
    with faults.recorded() as points:
        db = await open_driver(pgqrs.Config("sqlite://:memory:"), DatabaseClock())
        await migrations.install(db)
        await db.close()
    statements = sum(1 for point in points if point.phase == "sql")
    assert statements > 20
    # Every one on SQLite; on PostgreSQL a sample, as each costs a connection, with the first and the last in it.
    steps = range(1, statements + 1) if config.backend == "sqlite" else (1, 2, 3, statements // 2, statements)

    for step in steps:
        child = os.fork()
        if child == 0:
            _install_and_die(config, step)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        db = await open_driver(config, DatabaseClock())
        assert await migrations.version(db) == 0
        await db.close()

    store = await connect()
    await pgqrs.admin(store).verify()


def _install_and_die(config: pgqrs.Config, step: int) -> None:
    """In the forked child: an event loop of its own, and SIGKILL before the given statement."""
    left = step

    def count(point: faults.Point) -> None:
        nonlocal left
        if point.phase == "sql":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def install() -> None:
        db = await open_driver(config, DatabaseClock())
        await migrations.install(db)

    with faults.injected(count):
        runner = asyncio.new_event_loop()
        asyncio._set_running_loop(None)
        runner.run_until_complete(install())
    os._exit(1)


def test_the_schema_can_be_printed_for_each_database():
    for dialect in (Dialect("postgres", "tenant_a"), Dialect("sqlite")):
        text = migrations.script(dialect)

        assert not re.search(r"\{[a-z]", text)
        assert ('"tenant_a".pgqrs_messages' in text) == dialect.is_postgres


def test_statements_are_split_at_line_ends_and_not_inside_function_bodies():
    text = "create a;\n-- x;y\ncreate function f() as $$ begin; end;\n$$ language sql;\n\ncreate b (';');\n"

    bodies = [query.text.strip() for query in migrations._statements("x", text)]

    assert bodies == ["create a", "-- x;y\ncreate function f() as $$ begin; end;\n$$ language sql", "create b (';')"]
