"""Retention under kills and beside others: a run is there with all that belongs to it or gone, and nobody waits."""

import asyncio
import contextlib
import os
import signal

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.clock import DatabaseClock
from pgqrs.db.drivers import open_driver
from pgqrs.engine import janitor as module
from pgqrs.engine.janitor import Janitor
from rig.past import Past

BELONGINGS = ("workflow_steps", "signals", "workflow_events", "run_attributes")


async def old_runs(past):
    """Ended ones, a parent with a child that stays, and a soft-deleted one that has not ended."""
    await past.run(age=10)
    parent = await past.run("ERROR", age=10)
    await past.run(age=1, parent=parent)
    await past.run("PAUSED", age=10, deleted=8)
    await past.archived("tasks", age=10)


async def state(past):
    """Everything that retention could have touched."""
    return {
        table: await past.left(table, column)
        for table, column in (
            *((table, "run_id") for table in (*BELONGINGS, "workflow_runs", "messages")),
            ("archived_messages", "message_id"),
        )
    }


@pytest.mark.row("B1.2")
@pytest.mark.several_processes
async def test_a_kill_at_any_statement_leaves_nothing_half_deleted(config, connect):
    store = await connect(clock=DatabaseClock())
    past, retention = Past(store), pgqrs.retention(store)
    for what in ("runs", "deleted_runs", "archived_messages"):
        await retention.keep(what, days=7)
    statements = 0

    while True:
        statements += 1
        await old_runs(past)
        child = os.fork()
        if child == 0:
            _sweep_and_die(config, statements)
        _, status = os.waitpid(child, 0)
        left = await state(past)
        for table in BELONGINGS:
            assert set(left[table]) == set(left["workflow_runs"]), (statements, left)
        if os.WIFEXITED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL

    assert statements > 20
    assert len(left["workflow_runs"]) == statements
    assert left["messages"] == left["archived_messages"] == []


def _sweep_and_die(config: pgqrs.Config, statement: int) -> None:
    """In the forked child: an event loop of its own, and SIGKILL before the given statement."""
    left = statement

    def count(point: faults.Point) -> None:
        nonlocal left
        if point.phase == "sql":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def sweep() -> None:
        db = await open_driver(config, DatabaseClock())
        with faults.injected(count):
            await Janitor(db, config).sweep()

    asyncio.set_event_loop(loop := asyncio.new_event_loop())
    loop.run_until_complete(sweep())
    os._exit(0)


async def test_a_batch_that_fails_deletes_nothing(store):
    past = Past(store)
    await old_runs(past)
    await pgqrs.retention(store).keep("runs", days=7)
    before = await state(past)

    def fail() -> None:
        raise pgqrs.PgqrsError("no")

    with faults.injected(faults.at("sql", "delete_runs", fail)), pytest.raises(pgqrs.PgqrsError):
        await pgqrs.retention(store).apply()

    assert await state(past) == before


async def test_several_janitors_at_once_delete_each_run_once(store, connect, config, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 3)
    past = Past(store)
    parents = [await past.run(age=10) for _ in range(10)]
    for parent in parents:
        await past.run(age=10, parent=parent)
        await past.run(age=1, parent=parent)
        await past.event(parent, age=40)
    await pgqrs.retention(store).keep("runs", days=7)
    await pgqrs.retention(store).keep("events", days=30)
    stores = [store] if config.backend == "turso" else [store, await connect(), await connect()]

    reports = await asyncio.gather(*(Janitor(each.database, each.config).sweep() for each in stores * 2))
    # What one had locked, the others passed over.
    reports.append(await Janitor(store.database, store.config).sweep())

    assert sum(report.counts[1].count for report in reports) == 20
    assert len(await past.left("workflow_runs", "run_id")) == 10


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("held", ["its message", "its row", "a child of it"])
async def test_a_run_that_somebody_else_has_is_passed_over_at_once(live_store, config, held):
    import asyncpg

    past, retention = Past(live_store), pgqrs.retention(live_store)
    run_id = await past.run("PAUSED", age=10, deleted=8)
    child = await past.run("PENDING", age=1, parent=run_id)
    await past.run("PAUSED", age=10, deleted=8)
    await retention.keep("deleted_runs", days=7)
    connection = await asyncpg.connect(config.dsn, server_settings={"search_path": config.schema})
    await connection.execute("begin")
    table, locked = {
        "its message": ("messages", run_id),
        "its row": ("workflow_runs", run_id),
        "a child of it": ("workflow_runs", child),
    }[held]
    await connection.execute(f"select 1 from pgqrs_{table} where run_id = {locked} for update")

    async with asyncio.timeout(10):
        report = await retention.apply()
    await connection.close()

    assert [(each.count, each.held_back) for each in report.counts] == [(1, 1)]
    assert await past.left("workflow_runs", "run_id") == [run_id, child]
    assert run_id in await past.left("messages", "run_id")


async def test_a_janitor_and_executors_do_not_get_in_each_others_way(live_store):
    """Children end, parents are deleted, runs are cancelled and restarted, all at once: no deadlock, no error."""
    past, retention = Past(live_store), pgqrs.retention(live_store)
    flow = pgqrs.workflow("flow")
    await live_store.create_workflow("flow")
    await retention.keep("runs", seconds=0)
    await retention.keep("deleted_runs", seconds=0)

    async def handler(ctx, depth):
        if depth:
            child = await ctx.spawn("flow", depth - 1)
            if depth % 2:
                await child.result()
        return depth

    worker = await pgqrs.consumer("w", 1, "flow").handler(handler).concurrency(5).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    await flow.trigger_many([3] * 20).execute(live_store)
    await asyncio.gather(
        _disturb(flow, live_store), *(retention.apply() for _ in range(5)), *(retention.apply() for _ in range(5))
    )
    worker.stop()
    await polling

    for table in BELONGINGS:
        assert set(await past.left(table, "run_id")) <= set(await past.left("workflow_runs", "run_id"))


async def _disturb(flow, store):
    """Deletes, cancels and restarts what it finds, as an impatient operator does."""
    for _ in range(10):
        for run in await flow.runs(store, limit=100):
            if run.run_id % 7 == 0:
                with contextlib.suppress(pgqrs.RunNotFound):
                    await flow.delete(run.run_id, store)
        for run in await flow.runs(store, limit=5):
            try:
                await flow.cancel(run.run_id, store)
                await flow.restart(run.run_id, store)
            except (pgqrs.InvalidTransition, pgqrs.RunNotFound):
                continue
