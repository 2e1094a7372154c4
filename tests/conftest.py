"""One suite for every backend: a fresh file or schema per test, a hand-set clock, a real PostgreSQL."""

from __future__ import annotations

import functools
import inspect
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import pgqrs
from pgqrs.api.store import Store
from pgqrs.api.workflow import _known
from pgqrs.engine.definitions.handlers import served
from rig import long_tests, memory, pgbouncer, postgres, templates
from rig.guards import install_guards
from rig.invariants import check_invariants
from rig.schemas import Schemas

BACKENDS = ("sqlite", "postgres", "turso")
DSN = "PGQRS_TEST_POSTGRES_DSN"
# Every database that a test installs gets the guards: slower, and names the statement that broke something.
GUARDED = bool(os.environ.get("PGQRS_TEST_GUARDS"))
_running = pytest.StashKey[ExitStack]()


# On Turso each time: what asks the database something that no other test asks. What is above the store (handlers, pages,
# commands) does the same there as on SQLite, whose driver class Turso shares, and is run with `--turso=all`, as in CI.
ON_TURSO = ("db", "properties")
STORE = """
    changes children dead_letters deleting enqueue healing history leases metrics outbox promote queues restarting
    retention retrying_children schedules search transactions workflows
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--on", default=",".join(BACKENDS), help="the databases to test, with commas")
    parser.addoption("--turso", default="some", choices=("some", "all"), help="what to run on Turso")
    parser.addoption(
        "--long",
        default="run",
        choices=("run", "leave", "list"),
        help="tests/rig/long_tests.txt: run, leave out, write",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The controller starts what the workers share; they find it in their environment."""
    if config.option.long == "leave":
        config.pluginmanager.register(long_tests.Leaver())
    if hasattr(config, "workerinput"):
        return
    if config.option.long == "list":
        config.pluginmanager.register(long_tests.Timer())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell makes what it starts in the background ignore Ctrl-C, and so would every program that a test starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    memory.prefer()
    stack = config.stash[_running] = ExitStack()
    try:
        dsn = stack.enter_context(postgres.provide())
        if os.environ.get("PGQRS_TEST_PGBOUNCER"):
            dsn = stack.enter_context(pgbouncer.start(dsn))
        os.environ[DSN] = dsn
    except postgres.ServerFailed as error:
        # On a developer's machine the other backends can still be tested; CI must not be green without this one.
        if os.environ.get("CI"):
            raise
        os.environ["PGQRS_TEST_POSTGRES_MISSING"] = str(error)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _running in config.stash:
        config.stash[_running].close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        chosen = set(BACKENDS)
        if marker := metafunc.definition.get_closest_marker("backends"):
            chosen &= set(marker.args)
        options = metafunc.config.option
        chosen &= set(options.on.split(","))
        if metafunc.definition.get_closest_marker("several_processes"):
            chosen.discard("turso")
        if options.turso == "some" and not _is_of_the_store(metafunc.definition.path):
            chosen.discard("turso")
        metafunc.parametrize("backend", [b for b in BACKENDS if b in chosen], indirect=True)


def _is_of_the_store(file: Path) -> bool:
    return file.parent.name in ON_TURSO or file.stem.removeprefix("test_") in STORE.split()


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres" and DSN not in os.environ:
        pytest.skip(os.environ["PGQRS_TEST_POSTGRES_MISSING"])
    return str(request.param)


@pytest.fixture(autouse=True)
def _forget_handlers(request: pytest.FixtureRequest) -> Iterator[None]:
    """What one test decorates or serves tells nothing about another's workflow of the same name."""
    known = dict(_known)
    # Nor what other tests, and modules of other folders, decorated when they were imported.
    _known.clear()
    _known.update({name: each for name, each in known.items() if _is_of(request.path, _file(each.function))})
    yield
    served.clear()
    _known.clear()
    _known.update(known)


def _is_of(test: Path, file: Path) -> bool:
    return file == test or (file.parent == test.parent and not file.name.startswith("test_"))


def _file(function: Callable[..., object]) -> Path:
    return Path(inspect.unwrap(function).__code__.co_filename)


@pytest.fixture
def clock() -> pgqrs.ManualClock:
    return pgqrs.ManualClock()


@pytest.fixture
def config(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> pgqrs.Config:
    """A database that nobody has used; with the tables in it already if the test has asked for a store."""
    if backend == "postgres":
        schema = _schemas().name() if _wants_tables(request) else f"t_{secrets.token_hex(8)}"
        return pgqrs.Config(os.environ[DSN], schema=schema, pool_size=4)
    if _wants_tables(request):
        templates.copied(backend, tmp_path / "app.db")
    return pgqrs.Config(f"{backend}:///{tmp_path / 'app.db'}")


def _wants_tables(request: pytest.FixtureRequest) -> bool:
    return not {"store", "live_store"}.isdisjoint(request.fixturenames)


@functools.cache
def _schemas() -> Schemas:
    return Schemas(os.environ[DSN])


Connect = Callable[..., Awaitable[Store]]


@pytest.fixture
async def connect(
    config: pgqrs.Config, clock: pgqrs.ManualClock, request: pytest.FixtureRequest
) -> AsyncIterator[Connect]:
    """Opens stores on the test's database; after the test they are closed, and the invariants checked."""
    stores: list[Store] = []
    reused = config.backend == "postgres" and _wants_tables(request)

    async def open_one(*, install: bool = True, clock: pgqrs.Clock = clock) -> Store:
        # Nothing has touched it since it was installed, until the first store is open.
        is_there = reused and not stores and _schemas().is_installed(config.schema)
        store = await pgqrs.connect_with(config, install=install and not is_there, clock=clock)
        stores.append(store)
        if install and reused:
            _schemas().installed(config.schema)
        if GUARDED and install:
            await install_guards(store)
        return store

    yield open_one
    for store in stores:
        await store.close()
    broken = {code for marker in request.node.iter_markers("breaks") for code in marker.args}
    await check_invariants(config, broken=broken)
    if reused:
        _schemas().give_back(config.schema)
    elif config.backend == "postgres":
        await drop_schema(config)


@pytest.fixture
async def store(connect: Connect) -> Store:
    """A store with the hand-set clock."""
    return await connect()


@pytest.fixture
async def live_store(connect: Connect) -> Store:
    """A store on the database's own clock."""
    return await connect(clock=pgqrs.DatabaseClock())


async def drop_schema(config: pgqrs.Config) -> None:
    import asyncpg

    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    try:
        await connection.execute(f'drop schema if exists "{config.schema}" cascade')
    finally:
        await connection.close()
