"""While a kit is open, code under test that connects without a DSN gets the kit's store, never the real database."""

import asyncio
import gc

import pytest

import pgqrs as library
from pgqrs.testing import AsyncKit, Kit, crash_everywhere


@pytest.fixture(autouse=True)
def real(tmp_path, monkeypatch):
    """The database that the code under test would find in production."""
    file = tmp_path / "real.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGQRS_DSN", f"sqlite:///{file}")
    yield file
    assert not file.exists(), "the real database was opened"


@library.step
async def announce(sku: str) -> str:
    async with library.connect() as store:
        await (await store.producer("mails")).enqueue({"sku": sku})
    return sku


@library.step
def announce_plainly(sku: str) -> str:
    with library.blocking.connect() as store:
        store.producer("mails").enqueue({"sku": sku})
    return sku


@library.workflow
async def order_connecting(ctx, sku: str) -> str:
    return await announce(sku)


@library.workflow
def plain_order_connecting(ctx, sku: str) -> str:
    return announce_plainly(sku)


@library.workflow
def mixed_connecting(ctx, sku: str) -> str:
    async def there() -> str:
        with library.blocking.connect() as store:
            return repr(store)

    return ctx.step("there", there)


@library.workflow
def greet_connecting(ctx, name: str) -> str:
    return ctx.step("hello", lambda: f"hello {name}")


@library.workflow
async def greet_connecting_async(ctx, name: str) -> str:
    return await ctx.step("hello", lambda: f"hello {name}")


@pytest.mark.parametrize("workflow", [order_connecting, plain_order_connecting])
def test_a_step_that_connects_gets_the_store_of_the_kit(pgqrs, workflow):
    pgqrs.store.create_queue("mails")
    run = pgqrs.trigger(workflow, "A1")
    pgqrs.drain()

    assert run.result() == "A1"
    pgqrs.assert_enqueued("mails", matching={"sku": "A1"})


@pytest.mark.parametrize("workflow", [order_connecting, plain_order_connecting])
async def test_it_is_so_in_async_tests(apgqrs, workflow):
    await (await apgqrs.open()).create_queue("mails")
    run = await apgqrs.trigger(workflow, "A1")
    await apgqrs.drain()

    assert run.result() == "A1"
    await apgqrs.assert_enqueued("mails", matching={"sku": "A1"})


def test_the_kit_goes_on_when_such_a_store_is_closed(pgqrs):
    with library.blocking.connect() as store:
        store.create_queue("mails")
    with library.blocking.connect_with(library.Config(max_attempts=7)) as store:
        assert store.config.max_attempts == 7

    pgqrs.store.producer("mails").enqueue(1)
    pgqrs.assert_enqueued("mails", matching=1)


async def test_stores_that_are_opened_at_the_same_time_are_one_database(apgqrs):
    stores = await asyncio.gather(*(library.connect() for _ in range(5)))
    await stores[0].create_queue("mails")
    for store in stores:
        await (await store.producer("mails")).enqueue(1)
        await store.close()

    await apgqrs.assert_enqueued("mails", times=5)


def test_a_direct_call_runs_in_the_kit(pgqrs):
    assert greet_connecting.run("ann", key="ann") == greet_connecting("ann") == "hello ann"
    assert [run.result() for run in pgqrs.runs("greet_connecting")] == ["hello ann"] * 2


async def test_an_async_direct_call_runs_in_the_kit(apgqrs):
    assert await greet_connecting_async("ann") == "hello ann"
    assert [run.result() for run in await apgqrs.runs("greet_connecting_async")] == ["hello ann"]


def test_settings_that_name_another_place_are_the_kits(pgqrs):
    with library.blocking.connect(schema="shop", lease_seconds=7) as store:
        assert store.config.lease_seconds == 7
        assert store.config.schema == "public"


def test_a_store_that_is_named_is_another_one(pgqrs, tmp_path):
    pgqrs.store.create_queue("mails")
    with library.blocking.connect(f"sqlite:///{tmp_path}/other.db") as store, pytest.raises(library.QueueNotFound):
        store.producer("mails")


def test_blocking_calls_in_async_code_of_the_kit_are_refused_and_do_not_hang(pgqrs):
    run = pgqrs.trigger(mixed_connecting, "A1")
    pgqrs.drain()

    assert "pgqrs.blocking was called in async code" in run.error


def test_the_newest_kit_counts_and_then_the_one_before(pgqrs):
    with Kit() as inner:
        with library.blocking.connect() as store:
            store.create_queue("mails")
        inner.assert_enqueued("mails", times=0)
    with library.blocking.connect() as store, pytest.raises(library.QueueNotFound):
        store.producer("mails")


def test_a_kit_takes_any_database(config):
    with Kit(config) as kit:
        kit.store.create_queue("mails")
        for workflow in (order_connecting, plain_order_connecting):
            run = kit.trigger(workflow, "A1")
            kit.drain()
            assert run.result() == "A1"
        assert greet_connecting("ann") == "hello ann"
        kit.assert_enqueued("mails", matching={"sku": "A1"}, times=2)


@pytest.mark.parametrize("real_processes", [False, True])
def test_crashed_workers_connect_to_the_database_of_their_run(real_processes):
    def world(kit, run):
        kit.store.create_queue("mails")
        kit.drain()

    report = crash_everywhere(order_connecting, "A1", drive=world, real=real_processes)

    assert report.survived == report.boundaries


class TestWithoutAKit:
    @pytest.fixture(autouse=True)
    def real(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PGQRS_DSN", f"sqlite:///{tmp_path}/real.db")

    @pytest.mark.parametrize("forgotten", [False, True])
    def test_the_default_is_what_it_was(self, tmp_path, forgotten):
        kit = AsyncKit()
        if forgotten:
            del kit
            gc.collect()
        else:
            Kit.closing(kit)
        with library.blocking.connect() as store:
            assert store.config.dsn.endswith("real.db")

        assert (tmp_path / "real.db").exists()
