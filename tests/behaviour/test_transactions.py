"""`ctx.transaction`: an error of the user's function is the user's, whatever its class; a broken connection is not."""

import asyncio
import contextlib
import gc
import sqlite3
import sys

import asyncpg
import pytest

import pgqrs
from pgqrs.db.queries import Query
from pgqrs.text.durations import shown
from rig.databases import database

ERRORS = [
    OSError("no space in the user's bucket"),
    TimeoutError("the user's service is slow"),
    ConnectionResetError("the user's socket"),
    pgqrs.ConnectionFailed("another store of the user's"),
    pgqrs.LeaseLost("a message of the user's"),
    pgqrs.SchemaNotInstalled("another database of the user's"),
    asyncpg.DeadlockDetectedError("on a connection of the user's"),
    asyncpg.InterfaceError("connection is closed"),
    sqlite3.OperationalError("in a file of the user's"),
    sqlite3.IntegrityError("in a file of the user's"),
    ValueError("anything"),
]
LIBRARY = {"sqlite": "sqlite3", "postgres": "asyncpg", "turso": "turso"}


@pytest.fixture
async def ledger(store, config):
    """A table of the user's, with its full name."""
    name = f'"{config.schema}".ledger' if config.backend == "postgres" else "ledger"
    await store.database.execute(Query("ledger", f"create table {name} (id integer primary key, amount integer)"))
    return name


@pytest.fixture
def amounts(store, ledger):
    async def read():
        return [row[0] for row in await store.database.fetch(Query("amounts", f"select amount from {ledger}"))]

    return read


@pytest.fixture
def attempt(run):
    """Runs `work` in one transaction of a workflow; gives how often it was called, and what the handler caught."""

    async def once(work):
        calls = []
        caught = []

        async def counted(tx):
            calls.append(1)
            return await work(tx)

        async def handler(ctx, params):
            try:
                return await ctx.transaction("work", counted)
            except Exception as error:
                caught.append(error)
                raise

        await run(handler, max_attempts=1)
        return len(calls), caught[0] if caught else None

    return once


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_of_the_users_function_is_the_users(attempt, ledger, amounts, error):
    async def work(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        raise error

    calls, caught = await attempt(work)

    assert calls == 1
    assert type(caught) is type(error)
    assert str(caught) == str(error)
    assert await amounts() == []


async def test_a_missing_table_of_the_users_is_the_drivers_error(attempt, config):
    async def work(tx):
        await tx.execute("insert into nowhere values (1)")

    calls, caught = await attempt(work)

    assert calls == 1
    assert type(caught).__module__.partition(".")[0] == LIBRARY[config.backend]
    assert "nowhere" in str(caught)
    if config.backend == "postgres":
        assert type(caught) is asyncpg.UndefinedTableError
    if config.backend == "sqlite":
        assert type(caught) is sqlite3.OperationalError


async def test_a_unique_violation_of_the_users_is_the_drivers_error(attempt, ledger, amounts, config):
    async def work(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        await tx.execute(f"insert into {ledger} values (1, 6)")

    calls, caught = await attempt(work)

    assert calls == 1
    assert type(caught).__module__.partition(".")[0] == LIBRARY[config.backend]
    assert type(caught).__name__ in ("IntegrityError", "UniqueViolationError")
    assert await amounts() == []


async def test_a_typo_of_the_users_is_the_drivers_error(attempt, config):
    async def work(tx):
        await tx.execute("selekt 1")

    calls, caught = await attempt(work)

    assert calls == 1
    assert type(caught).__module__.partition(".")[0] == LIBRARY[config.backend]


@pytest.mark.backends("sqlite", "postgres")
async def test_a_deferred_constraint_of_the_users_is_the_drivers_error(attempt, store, ledger, amounts, config):
    entries = ledger.replace("ledger", "entries")
    key = f"create table {entries} (id integer references {ledger} (id) deferrable initially deferred)"
    await store.database.execute(Query("entries", key))

    async def work(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        await tx.execute(f"insert into {entries} values (7)")

    calls, caught = await attempt(work)

    assert calls == 1
    assert type(caught).__module__.partition(".")[0] == LIBRARY[config.backend]
    assert type(caught).__name__ in ("IntegrityError", "ForeignKeyViolationError")
    assert await amounts() == []


@pytest.mark.backends("postgres")
async def test_an_error_that_was_caught_but_undid_the_transaction_is_the_users(attempt, ledger, amounts):
    """PostgreSQL refuses every further statement of a transaction in which one has failed."""

    async def work(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        try:
            await tx.execute(f"insert into {ledger} values (1, 6)")
        except asyncpg.UniqueViolationError:
            return "never mind"

    calls, caught = await attempt(work)

    assert calls == 1
    assert type(caught) is asyncpg.UniqueViolationError
    assert await amounts() == []


@pytest.mark.backends("postgres")
async def test_a_connection_that_breaks_in_the_users_statement_is_the_engines_trouble(attempt, ledger, amounts):
    breaks = [True]

    async def work(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        if breaks.pop():
            breaks.append(False)
            try:
                await tx.execute("select pg_terminate_backend(pg_backend_pid())")
            except asyncpg.PostgresError as error:
                # Whatever the function makes of it.
                raise ValueError("it is broken") from error

    calls, caught = await attempt(work)

    assert (calls, caught) == (2, None)
    assert await amounts() == [5]


@pytest.mark.parametrize("cache", [256, 0], ids=["direct", "as behind a pooler"])
@pytest.mark.backends("postgres")
async def test_the_users_statements_run_under_the_servers_usual_settings(config, cache):
    usual = {"jit": "on", "enable_bitmapscan": "on", "enable_hashjoin": "off", "search_path": "shop, public"}
    seen = {}

    async def handler(ctx, params):
        async def work(tx):
            seen.update({name: (await tx.fetch(f"show {name}"))[0][0] for name in usual})
            await tx.execute("set search_path = nowhere")
            await tx.execute("set jit = on")

        await ctx.transaction("work", work)

    async with (
        database(config.dsn, jit="on", enable_hashjoin="off", search_path="shop, public") as dsn,
        pgqrs.connect(dsn, install=True, pool_size=2, statement_cache_size=cache) as store,
    ):
        await store.create_workflow("flow")
        await pgqrs.workflow("flow").trigger().execute(store)
        worker = await pgqrs.consumer("worker-1", 8080, "flow").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()

        assert seen == usual
        if cache:
            async with store.database._pool.acquire() as connection:
                assert await connection.fetchval("show search_path") == "pg_catalog"
                assert await connection.fetchval("show jit") == "off"


@pytest.mark.parametrize(
    "statement", ["commit", " ROLLBACK ;", "-- the end\nend", "begin", "abort", "/* a */ start transaction"]
)
async def test_the_function_cannot_end_the_transaction_itself(attempt, ledger, amounts, statement):
    async def work(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        await tx.execute(statement)

    calls, caught = await attempt(work)

    assert calls == 1
    assert isinstance(caught, pgqrs.ConfigError)
    assert await amounts() == []


@pytest.mark.backends("sqlite", "postgres")
async def test_savepoints_are_the_users(attempt, ledger, amounts):
    async def work(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        await tx.execute("savepoint mine")
        await tx.execute(f"insert into {ledger} values (2, 6)")
        await tx.execute("rollback to savepoint mine")
        await tx.execute("release savepoint mine")

    assert await attempt(work) == (1, None)
    assert await amounts() == [5]


@pytest.fixture
def replayed(run, clock):
    """Runs `work` in a transaction whose error is caught, then two branches, of which one waits; gives the run."""

    async def twice(work):
        async def handler(ctx, params):
            async def sleeps():
                await ctx.sleep(60)

            async def works():
                await ctx.step("beside", lambda: 1)

            with contextlib.suppress(ValueError):
                await ctx.transaction("work", work)
            await asyncio.gather(sleeps(), works())
            return "done"

        waiting = await run(handler)
        clock.advance(61)
        return await run(handler, run_id=waiting.run_id)

    return twice


async def test_a_transaction_that_failed_does_not_number_the_branches_after_it(replayed):
    async def work(tx):
        raise ValueError("declined")

    done = await replayed(work)

    assert (done.status, done.waiting_for) == ("SUCCESS", None)


@pytest.mark.backends("postgres")
async def test_tasks_of_the_users_function_do_not_number_the_branches_after_it(replayed):
    async def work(tx):
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))

    done = await replayed(work)

    assert (done.status, done.waiting_for) == ("SUCCESS", None)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("verb", ["execute", "fetch"])
async def test_a_statement_that_is_not_awaited_is_an_error_and_nothing_is_written(attempt, ledger, amounts, verb):
    async def work(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        getattr(tx, verb)(f"insert into {ledger} values (2, 6)")
        return "done"

    calls, caught = await attempt(work)
    gc.collect()

    assert calls == 1
    assert type(caught) is pgqrs.PermanentError
    assert str(caught) == (
        f"tx.{verb}({shown(f'insert into {ledger} values (2, 6)')}) was not awaited: the transaction is rolled back; "
        f"write `await tx.{verb}(...)`"
    )
    assert await amounts() == []


async def test_a_statement_that_is_returned_instead_of_awaited_is_told_too(attempt, ledger, amounts):
    async def work(tx):
        return tx.execute(f"insert into {ledger} values (1, 5)")

    _, caught = await attempt(work)

    assert "was not awaited" in str(caught)
    assert await amounts() == []


async def test_a_function_that_is_not_async_is_refused(attempt, ledger, amounts, run):
    def work(tx):
        tx.execute(f"insert into {ledger} values (1, 5)")

    async def handler(ctx, params):
        return await ctx.transaction("work", work)

    failed = await run(handler, max_attempts=1)

    assert "must be an async function: write `async def work(tx)`" in failed.error["message"]
    assert await amounts() == []


async def test_a_plain_function_may_return_the_one_statement_it_has(run, ledger, amounts):
    async def handler(ctx, params):
        return await ctx.transaction("work", lambda tx: tx.execute(f"insert into {ledger} values (1, 5)"))

    assert (await run(handler)).status == "SUCCESS"
    assert await amounts() == [5]


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_statement_left_in_a_task_is_an_error_too(attempt, ledger, amounts, turns):
    tasks = []

    async def work(tx):
        tasks.append(asyncio.create_task(tx.execute(f"insert into {ledger} values (1, 5)")))
        for _ in range(turns):
            await asyncio.sleep(0)

    calls, caught = await attempt(work)
    await asyncio.gather(*tasks, return_exceptions=True)

    assert calls == 1
    assert "was not awaited" in str(caught)
    assert await amounts() == []


async def waits(_tx):
    await asyncio.sleep(0.001)


async def gives_way(_tx):
    await asyncio.sleep(0)


async def has_a_deadline(tx):
    async with asyncio.timeout(5):
        await tx.fetch("select 1")


@pytest.mark.backends("sqlite", "turso")
@pytest.mark.parametrize("work", [waits, gives_way, has_a_deadline])
async def test_awaiting_anything_but_the_transaction_names_the_rule_and_is_not_retried(run, ledger, amounts, work):
    async def both(tx):
        await tx.execute(f"insert into {ledger} values (1, 5)")
        await work(tx)

    async def handler(ctx, params):
        await ctx.transaction("work", both)

    done = await run(handler)

    assert (done.status, done.attempt) == ("ERROR", 1)
    assert "awaited something other than its transaction" in done.last_error
    assert "do the rest in a step before it, and use that step's result" in done.last_error
    assert await amounts() == []


@pytest.mark.backends("sqlite", "turso")
async def test_a_closed_store_leaves_its_file_to_others_while_an_error_of_its_is_kept(store, config, attempt, ledger):
    async def work(tx):
        await tx.execute(f"insert into {ledger} values ('no number', 5)")

    _, kept = await attempt(work)
    await store.close()
    program = "import sys, pgqrs.blocking; pgqrs.blocking.connect(sys.argv[1]).close()"
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, config.dsn, stderr=pipe)
    _, said = await other.communicate()

    assert kept is not None
    assert (other.returncode, said) == (0, b"")


async def test_the_rest_is_done_in_a_step_before_the_transaction(run, ledger, amounts):
    async def price():
        await asyncio.sleep(0)
        return 7

    async def handler(ctx, params):
        amount = await ctx.step("price", price)
        await ctx.transaction("work", lambda tx: tx.execute(f"insert into {ledger} values (1, {amount})"))

    assert (await run(handler)).status == "SUCCESS"
    assert await amounts() == [7]


@pytest.mark.backends("sqlite")
async def test_a_runtime_error_of_the_users_function_stays_what_it_is(attempt):
    async def work(tx):
        raise RuntimeError("the oven is cold")

    _, caught = await attempt(work)

    assert type(caught) is RuntimeError
