"""A standby that did not have everything takes over, and the old primary comes back."""

import asyncio
import logging

import pytest

import pgqrs
from rig import standby
from rig.postgres import HOST
from rig.proxy import proxying


async def handler(ctx):
    await ctx.step("first", _nothing)
    await ctx.wait_for("go")
    return await ctx.step("second", _nothing)


async def _nothing():
    pass


async def work(store):
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()


@pytest.mark.row("B4.9", "B4.11")
async def test_what_is_left_fits_together_and_a_second_primary_is_told_of(caplog):
    caplog.set_level(logging.WARNING, "pgqrs.db")
    flow = pgqrs.workflow("flow")
    with standby.start() as pair:
        old = pair.primary
        async with proxying(old.port) as line:
            # Clients look at the first primary first.
            hosts = ",".join(f"{HOST}:{node.port}" for node in sorted(pair.nodes, key=lambda node: node is not old))
            dsn = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
            async with pgqrs.connect(dsn, install=True) as store:
                await store.create_workflow("flow")
                await store.create_queue("tasks")
                await (await store.producer("tasks")).enqueue("a message")
                ended, waiting = await flow.trigger_many([None, None]).execute(store)
                await flow.signal(ended, store, "go")
                await work(store)
                await asyncio.to_thread(pair.follow, line.port, synchronous=False)

                # From here on the standby hears nothing.
                line.fall_silent()
                [taken] = await (await store.consumer("tasks")).dequeue()
                await flow.signal(waiting, store, "go")
                lost = await flow.trigger(None).execute(store)
                await work(store)
                assert (await flow.get_run(waiting, store)).status == "SUCCESS"
                line.cut()
                await asyncio.to_thread(pair.fail_over)
                line.heal()

                statuses = [(await flow.get_run(each, store)).status for each in (ended, waiting)]
                assert statuses == ["SUCCESS", "PAUSED"]
                with pytest.raises(pgqrs.RunNotFound):
                    await flow.get_run(lost, store)
                assert await pgqrs.admin(store).check_invariants() == []
                await flow.signal(waiting, store, "go")
                await work(store)
                assert (await flow.get_run(waiting, store)).status == "SUCCESS"
                assert "timeline 2, before 1" in caplog.text
                # Leased anew by somebody who never heard of the first lease, and fenced from whoever has that.
                [again] = await (await store.consumer("tasks")).dequeue()
                assert again.id == taken.id
                with pytest.raises(pgqrs.LeaseLost):
                    await taken.archive()
                await again.archive()

                await asyncio.to_thread(pair.old_primary_returns)
                assert "an old primary accepts writes" not in caplog.text
                pair.primary.sql(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgqrs'"
                )
                await flow.get_run(waiting, store)
                assert "timeline 1, but another was on 2 already: an old primary accepts writes" in caplog.text
